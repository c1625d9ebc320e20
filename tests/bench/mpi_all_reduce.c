/* The MPI library's all-reduce: the peer of `lockstep bench all-reduce`.
   mpirun -np 2 mpi_all_reduce BYTES...     prints a line "bytes microseconds" per size */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int argument = 1; argument < argc; ++argument) {
    const long bytes = atol(argv[argument]);
    const int count = (int)(bytes / (long)sizeof(float));
    const int repetitions = bytes > (8 << 20) ? 10 : bytes > (1 << 20) ? 50 : bytes > (1 << 16) ? 400 : 4000;
    float* buffer = calloc((size_t)count, sizeof(float));
    for (int i = 0; i < 5; ++i) {
      MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < repetitions; ++i) {
      MPI_Allreduce(MPI_IN_PLACE, buffer, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    }
    const double seconds = (MPI_Wtime() - start) / repetitions;
    if (rank == 0) printf("%ld %.2f\n", bytes, seconds * 1e6);
    free(buffer);
  }
  MPI_Finalize();
  return 0;
}
