# Lockstep in a container.
#
#   docker build -t lockstep .
#   docker run --rm lockstep lockstep compare --dataset digits --modes dp,ddp --devices 1,2
#   docker run --rm lockstep 04_split_batch
#
# With the GPU code (the NVIDIA Container Toolkit gives the GPUs to the container):
#
#   docker build -t lockstep-cuda --build-arg BASE=nvidia/cuda:12.6.3-devel-ubuntu24.04 .
#   docker run --rm --gpus all lockstep-cuda lockstep devices
#
# BASE is any image of Debian 12 or newer or Ubuntu 24.04 or newer. The CPU kernels run on any processor of the
# architecture; --build-arg NATIVE=ON makes faster ones, for the machine that builds the image alone.
ARG BASE=debian:12

# What Lockstep is built with.
FROM ${BASE} AS tools
COPY scripts/setup.sh /tmp/setup.sh
RUN /tmp/setup.sh && rm -rf /var/lib/apt/lists/* /tmp/setup.sh

# Where Lockstep is worked on: .devcontainer mounts the sources here.
FROM tools AS dev
COPY scripts/setup.sh /tmp/setup.sh
RUN /tmp/setup.sh ca-certificates ccache clang-format-14 gdb git sudo && rm -rf /var/lib/apt/lists/* /tmp/setup.sh \
  && useradd --create-home --shell /bin/bash dev \
  && echo 'dev ALL=(ALL) NOPASSWD:ALL' >/etc/sudoers.d/dev
USER dev

FROM tools AS build
ARG NATIVE=OFF
WORKDIR /src
COPY . .
RUN cmake --preset release -DLOCKSTEP_NATIVE=${NATIVE} -DLOCKSTEP_GPU_ARCHITECTURES=RELEASE \
    -DLOCKSTEP_TESTS=OFF \
  && cmake --build build/release \
  && cmake --install build/release --strip --prefix /opt/lockstep

# The program, the tutorials, and the library with a compiler for programs of one's own.
FROM tools
COPY --from=build /opt/lockstep /usr/local
CMD ["lockstep", "--help"]
