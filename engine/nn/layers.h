// All layers.
#pragma once

#include "engine/nn/batch_norm.h"
#include "engine/nn/dropout.h"
#include "engine/nn/image_layers.h"
#include "engine/nn/linear.h"
#include "engine/nn/sequential.h"
