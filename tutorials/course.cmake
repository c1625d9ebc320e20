# The numbered programs in their order, each with the minutes that it takes to read and run. Questions are the first
# lines of their sources.
set(LOCKSTEP_TUTORIALS
  00_whole_engine:60 01_list_devices:15 02_check_gradients:20 03_train_model:20 04_split_batch:20 05_wrap_model:20
  06_train_replicas:25 07_sum_gradients:20 08_pass_chunks:25 09_fill_buckets:20 10_overlap_gradients:20 11_watch_step:20
  12_find_break_even:25 13_feed_devices:25 14_start_ranks:20 15_launch_ranks:20 16_train_processes:20
  17_join_hosts:20 18_miss_gradients:15 19_lack_rows:15 20_resume_training:20 21_place_parts:20 22_fill_pipeline:20 23_cut_matrices:20 24_shard_state:20
  25_cut_patches:20 26_double_batch:20 27_scale_batch:15 28_share_statistics:20 29_attend_characters:20 30_accumulate_gradients:20
  31_multiply_on_gpu:20)
