//! CUDA C++ through NVRTC.

use kernelopt_gpu_agent::cuda::build::image::Image;
use kernelopt_gpu_agent::cuda::build::{BuildError, BuildLimits, Builder, Kind, Order, occupancy};
use kernelopt_shared::target::Language;

use crate::bench::*;

const SOURCE: &str = r#"
#include <cuda_bf16.h>
extern "C" __global__ void scale(const __nv_bfloat16* x, float* y, int n) {
    __shared__ float held[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    held[threadIdx.x] = i < n ? __bfloat162float(x[i]) * FACTOR : 0.0f;
    __syncthreads();
    if (i < n) y[i] = held[threadIdx.x ^ 1];
}
"#;

fn build(builder: &Builder, source: &str) -> Result<kernelopt_gpu_agent::cuda::build::Built, BuildError> {
    let launch = launch("scale", &[("FACTOR", 3)]);
    builder.build(&Order { language: Language::Cuda, source, signature: COPIES, launch: &launch, kind: Kind::Kernel })
}

#[test]
fn kernels_and_modules_are_built_and_errors_said() {
    let Some((_folder, builder)) = builder(1, BuildLimits::default()) else { return };
    let built = match build(&builder, SOURCE) {
        Err(BuildError::Environment { what, .. }) if what.contains("NVRTC") => return eprintln!("SKIPPED: {what}"),
        other => other.unwrap(),
    };
    assert_eq!((built.binary.entry.as_str(), built.binary.threads, built.binary.hidden_pointers), ("scale", 128, 0));
    let image = Image::read(&built.binary.cubin).unwrap();
    assert_eq!((image.kernels["scale"].parameters.as_slice(), image.kernels["scale"].static_shared_bytes), (&[8, 8, 4][..], 1024));
    assert!(occupancy(&built.binary, 90).unwrap().blocks_per_sm >= 16);

    let error = build(&builder, &SOURCE.replace("held[threadIdx.x] =", "undeclared =")).unwrap_err();
    assert!(matches!(&error, BuildError::Compiler { line: Some(6), reason } if reason.contains("undeclared")), "{error}");
    let mangled = build(&builder, &SOURCE.replace("extern \"C\" ", "")).unwrap_err();
    assert!(mangled.to_string().contains("extern \"C\""), "{mangled}");
    let fewer = build(&builder, "extern \"C\" __global__ void scale(float* y) { *y = 1; }").unwrap_err();
    assert!(fewer.to_string().contains("takes 1 arguments; the target has 3"), "{fewer}");
    let wider = build(&builder, "extern \"C\" __global__ void scale(float* x, float* y, long long n) { *y = *x + n; }").unwrap_err();
    assert!(wider.to_string().contains("8 bytes where the target passes xnumel in 4"), "{wider}");
    let secret = build(&builder, &format!("#include \"/etc/passwd\"\n{SOURCE}")).unwrap_err();
    assert!(matches!(&secret, BuildError::Compiler { line: Some(1), reason } if !reason.contains("root")), "{secret}");

    let module = "extern \"C\" __global__ void a(int* x) { *x = 1; }\nextern \"C\" __global__ void b(int* x, double y) { *x = y; }";
    let image = Image::read(&builder.build_module(module).unwrap()).unwrap();
    assert_eq!(
        image.kernels.into_iter().map(|(name, kernel)| (name, kernel.parameters)).collect::<Vec<_>>(),
        [("a".to_owned(), vec![8]), ("b".to_owned(), vec![8, 8])]
    );
}
