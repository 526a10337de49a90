// The cases of cases.cu that are of textures and surfaces.
#pragma once

__global__ void sample(cudaTextureObject_t flat, cudaTextureObject_t line, cudaTextureObject_t rows,
                       cudaSurfaceObject_t surface, float* out) {
    const int x = threadIdx.x, y = threadIdx.y;
    float* mine = out + 4 * (y * 4 + x);
    mine[0] = tex2D<float>(flat, x + 1.0f, y + 0.5f);  // between x and the next one
    mine[1] = tex1Dfetch<int>(line, 4 * y + x);
    mine[2] = tex2D<float>(rows, x + 0.5f, y + 0.5f);
    mine[3] = surf2Dread<float>(surface, 4 * x, y);
    surf2Dwrite(mine[0], surface, 4 * x, y + 2);
}

static int textures() {
    const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
    cudaArray_t plain, written;
    CHECK(cudaMallocArray(&plain, &floats, 4, 2));
    CHECK(cudaMallocArray(&written, &floats, 4, 4, cudaArraySurfaceLoadStore));
    float values[8], found[32], back[16] = {};
    int whole[8];
    for (int i = 0; i < 8; ++i) values[i] = 10.0f * i, whole[i] = -i;
    CHECK(cudaMemcpy2DToArray(plain, 0, 0, values, 16, 16, 2, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DArrayToArray(written, 0, 0, plain, 0, 0, 16, 2));
    cudaResourceDesc about{};
    about.resType = cudaResourceTypeArray;
    about.res.array.array = plain;
    cudaTextureDesc how{};
    how.addressMode[0] = how.addressMode[1] = cudaAddressModeClamp;
    how.filterMode = cudaFilterModeLinear;
    cudaTextureObject_t flat, line, rows;
    CHECK(cudaCreateTextureObject(&flat, &about, &how, nullptr));
    cudaSurfaceObject_t surface;
    tell("a surface of a plain array", cudaCreateSurfaceObject(&surface, &about));
    about.res.array.array = written;
    CHECK(cudaCreateSurfaceObject(&surface, &about));

    int* memory;
    CHECK(cudaMalloc(&memory, sizeof whole));
    CHECK(cudaMemcpy(memory, whole, sizeof whole, cudaMemcpyHostToDevice));
    cudaResourceDesc straight{};
    straight.resType = cudaResourceTypeLinear;
    straight.res.linear = {memory, cudaCreateChannelDesc<int>(), sizeof whole};
    CHECK(cudaCreateTextureObject(&line, &straight, &how, nullptr));  // of linear memory a filter is ignored
    straight.res.linear.devPtr = memory + 1;
    tell("memory that is not aligned", cudaCreateTextureObject(&rows, &straight, &how, nullptr));
    void* lines;
    size_t pitch;
    CHECK(cudaMallocPitch(&lines, &pitch, 16, 2));
    CHECK(cudaMemcpy2D(lines, pitch, values, 16, 16, 2, cudaMemcpyHostToDevice));
    cudaResourceDesc spread{};
    spread.resType = cudaResourceTypePitch2D;
    spread.res.pitch2D = {lines, cudaCreateChannelDesc<int>(), 4, 2, pitch};
    tell("integers, filtered", cudaCreateTextureObject(&rows, &spread, &how, nullptr));
    how.filterMode = cudaFilterModePoint;
    how.readMode = cudaReadModeNormalizedFloat;
    tell("words as fractions", cudaCreateTextureObject(&rows, &spread, &how, nullptr));
    how.readMode = cudaReadModeElementType;
    spread.res.pitch2D.desc = floats;
    CHECK(cudaCreateTextureObject(&rows, &spread, &how, nullptr));

    float* out;
    CHECK(cudaMalloc(&out, sizeof found));
    sample<<<1, dim3(4, 2)>>>(flat, line, rows, surface, out);
    CHECK(cudaMemcpy(found, out, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 8; i += 3)
        std::printf("%g %g %g %g, ", found[4 * i], found[4 * i + 1], found[4 * i + 2], found[4 * i + 3]);
    CHECK(cudaMemcpy2DFromArray(back, 16, written, 0, 2, 16, 2, cudaMemcpyDeviceToHost));
    std::printf("written %g %g %g\n", back[0], back[3], back[7]);

    cudaDeviceProp most;
    int layers = 0, line_width = 0;
    CHECK(cudaGetDeviceProperties(&most, 0));
    CHECK(cudaDeviceGetAttribute(&layers, cudaDevAttrMaxTexture2DLayeredLayers, 0));
    CHECK(cudaDeviceGetAttribute(&line_width, cudaDevAttrMaxTexture1DLinearWidth, 0));
    std::printf("at most %d by %d, %d layers, %d in a line; surfaces of %d by %d\n", most.maxTexture2D[0],
                most.maxTexture2D[1], layers, line_width, most.maxSurface2D[0], most.maxSurface2D[1]);
    cudaExtent e;
    cudaChannelFormatDesc is;
    unsigned flags;
    CHECK(cudaArrayGetInfo(&is, &e, &flags, written));
    std::printf("%d bits, %zu by %zu, flags %u\n", is.x, e.width, e.height, flags);
    tell("beyond its rows", cudaMemcpy2DToArray(plain, 4, 0, values, 16, 16, 2, cudaMemcpyHostToDevice));
    CHECK(cudaGetTextureObjectResourceDesc(&about, flat));
    std::printf("over the array: %d\n", about.res.array.array == plain);
    CHECK(cudaDestroyTextureObject(flat));
    tell("destroyed", cudaGetTextureObjectResourceDesc(&about, flat));
    CHECK(cudaDestroySurfaceObject(surface));
    CHECK(cudaFreeArray(plain));
    CHECK(cudaFreeArray(written));
    tell("freed twice", cudaFreeArray(plain));
    return 0;
}

#define DRIVER(name, ...) CHECK(static_cast<cudaError_t>(driver<decltype(&name)>(#name)(__VA_ARGS__)))

static int driver_textures() {
    CUarray array;
    CUDA_ARRAY3D_DESCRIPTOR shape{}, told{};
    shape.Width = 4, shape.Height = 2, shape.Depth = 3;
    shape.Format = CU_AD_FORMAT_UNSIGNED_INT8, shape.NumChannels = 4, shape.Flags = CUDA_ARRAY3D_LAYERED;
    CHECK(cudaFree(nullptr));
    DRIVER(cuArray3DCreate, &array, &shape);
    DRIVER(cuArray3DGetDescriptor, &told, array);
    unsigned char bytes[96], back[16];
    for (int i = 0; i < 96; ++i) bytes[i] = static_cast<unsigned char>(i);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST, copy.srcHost = bytes, copy.srcPitch = 16, copy.srcHeight = 2;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY, copy.dstArray = array;
    copy.WidthInBytes = 16, copy.Height = 2, copy.Depth = 3;
    DRIVER(cuMemcpy3D, &copy);
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY, copy.srcArray = array, copy.srcY = 1, copy.srcZ = 2;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST, copy.dstHost = back, copy.dstPitch = 16, copy.Height = copy.Depth = 1;
    DRIVER(cuMemcpy3D, &copy);
    CUDA_RESOURCE_DESC about{};
    about.resType = CU_RESOURCE_TYPE_ARRAY, about.res.array.hArray = array;
    CUDA_TEXTURE_DESC how{};
    CUtexObject texture;
    DRIVER(cuTexObjectCreate, &texture, &about, &how, nullptr);
    cudaTextureDesc read;
    CHECK(cudaGetTextureObjectTextureDesc(&read, texture));
    DRIVER(cuTexObjectDestroy, texture);
    how.filterMode = CU_TR_FILTER_MODE_LINEAR, how.flags = CU_TRSF_READ_AS_INTEGER;
    const int filtered = driver<decltype(&cuTexObjectCreate)>("cuTexObjectCreate")(&texture, &about, &how, nullptr);
    DRIVER(cuArrayDestroy, array);
    std::printf("%zu layers of %u channels; %d to %d; fractions %d, integers filtered %d\n", told.Depth,
                told.NumChannels, back[0], back[15], read.readMode, filtered);
    return 0;
}

static const char* kPtx =
    ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .u32 counter = 40;\n"
    ".visible .entry bump(.param .u64 to, .param .u32 by) {\n.reg .b64 %rd<3>; .reg .b32 %r<4>;\n"
    "ld.param.u64 %rd1, [to]; ld.param.u32 %r1, [by]; ld.global.u32 %r2, [counter];\n"
    "add.u32 %r3, %r1, %r2; st.global.u32 [%rd1], %r3; ret; }\n";
