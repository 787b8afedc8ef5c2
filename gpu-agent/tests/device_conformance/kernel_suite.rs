//! Memory, launches, refusals and clocks.

use kernelopt_gpu_agent::cuda::bandwidth;
use kernelopt_gpu_agent::cuda::device::{Binary, Block, Device, DeviceError, KernelId, Run, Span, Step, Value};

/// Elements that the suite's kernels work on.
pub const COUNT: u64 = 1000;
/// `COUNT` as a kernel takes it.
pub const COUNT_ARGUMENT: Value = Value::I32(COUNT as i32);

/// Kernels of one device, all with the arguments `x, y, out, n`.
pub struct Kernels {
    /// `out[i] = 2 * x[i] + y[i]`.
    pub saxpy: Binary,
    /// The same, and one element more.
    pub past_the_end: Binary,
    /// Never ends, or not soon.
    pub spin: Binary,
}

/// Three arrays, with room behind the last, and a kernel.
pub struct Loaded {
    pub kernel: KernelId,
    pub x: Span,
    pub y: Span,
    pub out: Span,
    pub behind: Span,
}

impl Loaded {
    pub fn new(device: &mut dyn Device, binary: &Binary) -> Self {
        let kernel = device.load(binary).unwrap();
        let [x, y] = [3.0f32, 4.0].map(|value| {
            let span = device.allocate(4 * COUNT).unwrap();
            let bytes: Vec<u8> = (0..COUNT).flat_map(|i| (value * i as f32).to_le_bytes()).collect();
            device.upload(span, &bytes).unwrap();
            span
        });
        let whole = device.allocate(4 * COUNT + 256).unwrap();
        device.poison(whole, 1).unwrap();
        Self { kernel, x, y, out: whole.part(0, 4 * COUNT).unwrap(), behind: whole.part(4 * COUNT, 256).unwrap() }
    }

    pub fn run(&self) -> Run {
        let pointers = [self.x, self.y, self.out].map(|span| Value::Pointer(span.address));
        Run { kernel: self.kernel, grid: [4, 1, 1], arguments: pointers.into_iter().chain([COUNT_ARGUMENT]).collect() }
    }

    fn result(&self, device: &mut dyn Device) -> Vec<f32> {
        let mut bytes = vec![0; self.out.bytes as usize];
        device.download(self.out, &mut bytes).unwrap();
        bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
    }
}

pub fn memory_is_accounted_for(device: &mut dyn Device, _: &Kernels) {
    let before = device.allocated_bytes();
    let spans: Vec<Span> = [1, 1000, 1 << 20].into_iter().map(|bytes| device.allocate(bytes).unwrap()).collect();
    assert!(spans.iter().all(|span| span.address % 256 == 0));
    assert_eq!(device.allocated_bytes() - before, 1001 + (1 << 20));
    let bytes: Vec<u8> = (0..1000u32).map(|i| i as u8).collect();
    device.upload(spans[1], &bytes).unwrap();
    let target = spans[2].part(100, 1000).unwrap();
    device.copy(spans[1], target).unwrap();
    let mut back = vec![0; 1000];
    device.download(target, &mut back).unwrap();
    assert_eq!(back, bytes);
    for span in &spans {
        device.free(*span).unwrap();
    }
    assert_eq!(device.allocated_bytes(), before);
    assert!(device.free(spans[0]).is_err() && device.upload(spans[1], &bytes).is_err() && device.poison(spans[2], 1).is_err());
}

pub fn too_much_memory_is_refused_and_costs_nothing(device: &mut dyn Device, _: &Kernels) {
    let bytes = 2 * device.facts().memory_bytes;
    assert!(matches!(device.allocate(bytes), Err(DeviceError::OutOfMemory { bytes: wanted, free }) if wanted == bytes && free < bytes));
    let span = device.allocate(64).unwrap();
    assert!(device.poison(span, 1).is_ok());
    assert!(device.upload(span, &[0; 63]).is_err() && device.copy(span, span.part(0, 32).unwrap()).is_err());
}

pub fn a_kernel_writes_its_output_and_nothing_else(device: &mut dyn Device, kernels: &Kernels) {
    let loaded = Loaded::new(device, &kernels.saxpy);
    let inputs = [loaded.x, loaded.y].map(|span| device.digest(span).unwrap());
    device.launch(&loaded.run()).unwrap();
    assert!(loaded.result(device).iter().enumerate().all(|(i, value)| *value == 10.0 * i as f32));
    assert_eq!([loaded.x, loaded.y].map(|span| device.digest(span).unwrap()), inputs);
    let whole = Span { bytes: loaded.out.bytes + 256, ..loaded.out };
    assert_eq!(device.first_unpoisoned(whole, 1).unwrap(), Some(0));
    let mut behind = vec![0; 256];
    device.download(loaded.behind, &mut behind).unwrap();
    let mut poison = vec![0; whole.bytes as usize];
    kernelopt_gpu_agent::cuda::ops::reference::poison(&mut poison, 1);
    assert_eq!(behind, poison[4 * COUNT as usize..]);
}

pub fn a_kernel_that_leaves_its_output_is_seen(device: &mut dyn Device, kernels: &Kernels) {
    let loaded = Loaded::new(device, &kernels.past_the_end);
    device.poison(loaded.behind, 2).unwrap();
    device.launch(&loaded.run()).unwrap();
    assert_eq!(device.first_unpoisoned(loaded.behind, 2).unwrap(), Some(0));
    assert_eq!(device.first_unpoisoned(loaded.behind.part(8, 200).unwrap(), 2).unwrap(), Some(0), "patterns begin with their span");
}

pub fn impossible_launches_are_refused_and_cost_nothing(device: &mut dyn Device, kernels: &Kernels) {
    let refused = |result: Result<_, DeviceError>| matches!(result, Err(DeviceError::Refused(_)));
    let shared = Binary { shared_bytes: device.facts().shared_bytes + 1, ..kernels.saxpy.clone() };
    assert!(refused(device.load(&shared).map(drop)));
    let threads = Binary { threads: 1025, ..kernels.saxpy.clone() };
    assert!(refused(device.load(&threads).map(drop)));
    let loaded = Loaded::new(device, &kernels.saxpy);
    let short = Run { arguments: loaded.run().arguments[..3].to_vec(), ..loaded.run() };
    assert!(refused(device.launch(&short)));
    let long = Run { arguments: loaded.run().arguments.into_iter().chain([COUNT_ARGUMENT]).collect(), ..loaded.run() };
    assert!(refused(device.launch(&long)));
    assert!(refused(device.launch(&Run { grid: [0, 1, 1], ..loaded.run() })));
    assert!(refused(device.time(&[Block { steps: vec![Step::Launch(loaded.run()), Step::Launch(short)], cold: false }]).map(drop)));
    device.launch(&loaded.run()).unwrap();
    assert_eq!(loaded.result(device)[7], 70.0);
}

pub fn what_is_no_kernel_does_not_load(device: &mut dyn Device, kernels: &Kernels) {
    let image = |result: Result<_, DeviceError>| matches!(result, Err(DeviceError::Image(_)));
    let saxpy = &kernels.saxpy;
    for cubin in [Vec::new(), vec![0; 5000], saxpy.cubin[..saxpy.cubin.len() - 1].to_vec(), saxpy.cubin[..40].to_vec()] {
        assert!(image(device.load(&Binary { cubin, ..saxpy.clone() }).map(drop)));
    }
    for entry in ["absent", "", "sax\0py"] {
        assert!(image(device.load(&Binary { entry: entry.into(), ..saxpy.clone() }).map(drop)), "{entry}");
    }
    let kernel = device.load(saxpy).unwrap();
    device.unload(kernel).unwrap();
    let run = Run { kernel, grid: [1, 1, 1], arguments: Vec::new() };
    assert!(device.unload(kernel).is_err() && device.launch(&run).is_err());
}

/// Each step finds what the one before has left, whether it is run or timed.
pub fn steps_follow_one_another(device: &mut dyn Device, kernels: &Kernels) {
    for timed in [false, true] {
        let loaded = Loaded::new(device, &kernels.saxpy);
        let back = [loaded.out, loaded.y, loaded.x].map(|span| Value::Pointer(span.address));
        let back = Run { arguments: back.into_iter().chain([COUNT_ARGUMENT]).collect(), ..loaded.run() };
        let half = loaded.y.part(0, loaded.y.bytes / 2).unwrap();
        let steps = vec![Step::Zero(half), Step::Launch(loaded.run()), Step::Launch(back)];
        if timed {
            assert!(device.time(&[Block { steps, cold: true }]).unwrap()[0] > 0.0);
        } else {
            device.run(&steps).unwrap();
        }
        // First 6 i and 10 i, then twice that and what is left of 4 i.
        let result = Loaded { out: loaded.x, ..loaded }.result(device);
        let expected = |i: usize| i as f32 * if (i as u64) < COUNT / 2 { 12.0 } else { 24.0 };
        assert!(result.iter().enumerate().all(|(i, value)| *value == expected(i)), "{result:?}");
    }
    let foreign = device.allocate(512).unwrap();
    device.free(foreign).unwrap();
    assert!(device.run(&[Step::Zero(foreign)]).is_err());
}

pub fn more_work_takes_more_time(device: &mut dyn Device, kernels: &Kernels) {
    let loaded = Loaded::new(device, &kernels.saxpy);
    let block = |times: usize, cold: bool| Block { steps: vec![Step::Launch(loaded.run()); times], cold };
    device.time(&[block(1, true), block(200, false)]).unwrap();
    let times = device.time(&[block(1, false), block(20, true), block(200, false), block(1, true), block(200, true)]).unwrap();
    assert_eq!(times.len(), 5);
    assert!(times.iter().all(|ns| *ns > 0.0 && *ns < 1e8), "{times:?}");
    assert!(times[1] > times[3] && times[2] > 2.0 * times[1] && times[4] > 2.0 * times[1], "{times:?}");
    assert_eq!(device.time(&[]).unwrap(), Vec::<f64>::new());
    assert_eq!(loaded.result(device)[7], 70.0);
}

pub fn bandwidth_is_plausible(device: &mut dyn Device, _: &Kernels) {
    let before = device.allocated_bytes();
    let curve = bandwidth::measure(device).unwrap();
    assert_eq!(device.allocated_bytes(), before);
    // Between 10 GB/s and 100 TB/s.
    assert!(curve.0.len() > 2 && curve.0.iter().all(|(_, rate)| (1e4..1e8).contains(rate)), "{curve:?}");
    let state = device.state();
    eprintln!("{}: bytes, bytes/us: {:?}; {state:?}", device.facts().name, curve.0);
}
