#define EIGEN_DONT_PARALLELIZE
#include "kernels/cpu/gemm.h"

#include <Eigen/Core>
#include <algorithm>

#include "kernels/cpu/parallel.h"

namespace lockstep::kernels {
namespace {

// Multiplications that repay a hand-over to another thread.
constexpr std::size_t kGemmGrain = 64 * 1024;

template <typename T, int Order>
using Block = Eigen::Map<const Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Order>, 0,
                         Eigen::OuterStride<>>;
template <typename T>
using Result = Eigen::Map<Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>, 0,
                          Eigen::OuterStride<>>;

Eigen::Index index(std::size_t size) {
  return static_cast<Eigen::Index>(size);
}

template <typename T, int OrderA, int OrderB>
void multiply_tile(const Product<T>& p, const Tile& tile) {
  const std::size_t rows = tile.row_end - tile.row_begin;
  const std::size_t cols = tile.col_end - tile.col_begin;
  const std::size_t a_start =
      OrderA == Eigen::RowMajor ? tile.row_begin * p.a.leading_dimension : tile.row_begin;
  const std::size_t b_start =
      OrderB == Eigen::RowMajor ? tile.col_begin : tile.col_begin * p.b.leading_dimension;
  const Block<T, OrderA> a(p.a.data + a_start, index(rows), index(p.depth),
                           Eigen::OuterStride<>(index(p.a.leading_dimension)));
  const Block<T, OrderB> b(p.b.data + b_start, index(p.depth), index(cols),
                           Eigen::OuterStride<>(index(p.b.leading_dimension)));
  Result<T> c(p.c + tile.row_begin * p.leading_dimension + tile.col_begin, index(rows), index(cols),
              Eigen::OuterStride<>(index(p.leading_dimension)));
  if (p.write == Write::overwrite) {
    c.noalias() = a * b;
  } else {
    c.noalias() += a * b;
  }
}

template <typename T>
void multiply(const Product<T>& p, const Tile& tile) {
  constexpr int kRow = Eigen::RowMajor;
  constexpr int kColumn = Eigen::ColMajor;
  const bool a_turned = p.a.transpose == Transpose::yes;
  if (p.b.transpose == Transpose::yes) {
    a_turned ? multiply_tile<T, kColumn, kColumn>(p, tile)
             : multiply_tile<T, kRow, kColumn>(p, tile);
  } else {
    a_turned ? multiply_tile<T, kColumn, kRow>(p, tile) : multiply_tile<T, kRow, kRow>(p, tile);
  }
}

}  // namespace

template <typename T>
void gemm(Stream& stream, const Product<T>& p, const std::function<void(const Tile&)>& finish) {
  if (p.rows == 0 || p.cols == 0) return;
  const auto run = [&](const Tile& tile) {
    multiply(p, tile);
    if (finish) finish(tile);
  };
  runtime::ThreadPool& threads = stream.device().threads();
  const bool by_rows = p.rows >= p.cols;
  const std::size_t length = by_rows ? p.rows : p.cols;
  const std::size_t wanted = std::min(
      {threads.num_threads(), (length + 15) / 16, p.rows * p.cols * p.depth / kGemmGrain + 1});
  const std::size_t step = ((length + wanted - 1) / wanted + 15) / 16 * 16;
  threads.parallel_for((length + step - 1) / step, [&](std::size_t i) {
    const std::size_t begin = i * step;
    const std::size_t end = std::min(length, begin + step);
    run(by_rows ? Tile{begin, end, 0, p.cols} : Tile{0, p.rows, begin, end});
  });
}

template void gemm(Stream&, const Product<float>&, const std::function<void(const Tile&)>&);
template void gemm(Stream&, const Product<double>&, const std::function<void(const Tile&)>&);

}  // namespace lockstep::kernels
