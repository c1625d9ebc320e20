// What is behind a cublasLtHandle_t; the name is the library's.
#pragma once

struct cublasLtContext {
  int gpu;
};
