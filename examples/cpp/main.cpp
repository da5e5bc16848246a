// A linear layer with GELU, gelu(A @ B + bias), by one kernel; then a product whose K is shared by several blocks, which
// needs a workspace. Both are compared with a loop.
#include <kernels/kernels.hpp>

#include <cuda_runtime.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

static void require(cudaError_t code)
{
    if (code == cudaSuccess) return;
    std::fprintf(stderr, "%s\n", cudaGetErrorString(code));
    std::exit(1);
}

static void require(const kernels::rt::Status& status)
{
    if (status) return;
    std::fprintf(stderr, "%s\n", status.message.c_str());
    std::exit(1);
}

static float* on_gpu(const std::vector<float>& values)
{
    float* address;
    require(cudaMalloc(&address, values.size() * sizeof(float)));
    require(cudaMemcpy(address, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice));
    return address;
}

static double furthest(const float* c, const std::vector<double>& want)
{
    std::vector<float> got(want.size());
    require(cudaMemcpy(got.data(), c, got.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double most = 0;
    for (std::size_t i = 0; i < got.size(); ++i) most = std::fmax(most, std::fabs(got[i] - want[i]));
    return most;
}

int main()
{
    const int M = 300, N = 200, K = 1000;
    std::vector<float> a(M * K), b(K * N), bias(N), zeros(M * N);
    for (int i = 0; i < M * K; ++i) a[i] = float(i % 17 - 8) / 64;
    for (int i = 0; i < K * N; ++i) b[i] = float(i % 13 - 6) / 64;
    for (int i = 0; i < N; ++i) bias[i] = float(i % 5 - 2);
    std::vector<double> product(M * N), layer(M * N);
    for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j) {
            double sum = 0;
            for (int k = 0; k < K; ++k) sum += double(a[i * K + k]) * b[k * N + j];
            const double x = sum + bias[j];
            product[i * N + j] = sum;
            layer[i * N + j] = x * (1 + std::erf(x / std::sqrt(2.0))) / 2;
        }

    cudaStream_t stream;
    require(cudaStreamCreate(&stream));
    const float* A = on_gpu(a);
    const float* B = on_gpu(b);
    float* C = on_gpu(zeros);

    kernels::gemm_bias_gelu::Arguments fused;
    fused.M = M;
    fused.N = N;
    fused.K = K;
    fused.A = A;
    fused.B = B;
    fused.C = C;
    fused.bias = on_gpu(bias);
    fused.stream = stream;
    require(kernels::gemm_bias_gelu::gemm(fused));
    require(cudaStreamSynchronize(stream));
    std::printf("gelu(A @ B + bias): largest error %.2g\n", furthest(C, layer));

    kernels::splitk::Arguments split;
    split.M = M;
    split.N = N;
    split.K = K;
    split.A = A;
    split.B = B;
    split.C = C;
    split.stream = stream;
    require(kernels::splitk::workspace_bytes(split, split.workspace_bytes));
    require(cudaMalloc(&split.workspace, split.workspace_bytes));
    require(kernels::splitk::gemm(split));
    require(cudaStreamSynchronize(stream));
    std::printf("A @ B: largest error %.2g\n", furthest(C, product));
    return 0;
}
