# The numbered programs in their order, each with the minutes that it takes to read and run. Questions are the first
# lines of their sources.
set(LOCKSTEP_TUTORIALS
  00_whole_engine:60
  01_list_devices:15 02_check_gradients:20 03_train_model:20 04_split_batch:20 05_sum_gradients:20
  06_train_replicas:25 07_wrap_model:20 08_pass_chunks:25 09_overlap_gradients:25 10_multiply_on_gpu:20
  11_start_ranks:20 12_launch_ranks:20 13_train_processes:20 14_join_hosts:20 15_find_break_even:25
  16_watch_step:20 17_feed_devices:25 18_place_parts:20 19_cut_patches:20
  20_double_batch:25 21_share_statistics:20
  22_attend_characters:20 23_accumulate_gradients:20 24_miss_gradients:20 25_resume_training:20
  26_shard_state:20 27_split_model:20)
