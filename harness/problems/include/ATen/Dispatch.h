#pragma once
#include "fmha_calls.h"
