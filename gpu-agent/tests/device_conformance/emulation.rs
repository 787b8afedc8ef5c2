//! The CUDA text of the ops, compiled by the host's C++ compiler: its algorithms and its launches are tested where there is no GPU.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use kernelopt_gpu_agent::cuda::device::{
    Allowance, Binary, Block, Compared, Comparison, Device, DeviceError, DeviceFacts, DeviceState, Done, Draw, Elements, KernelId, Span,
    Step,
};
use kernelopt_gpu_agent::cuda::ops::launch::{self, Argument, BLOCKS, Machine, SCRATCH_BYTES, THREADS};
use kernelopt_gpu_agent::cuda::ops::{Op, SOURCE};
use kernelopt_gpu_agent::cuda::simulated::SimDevice;
use kernelopt_gpu_agent::referee::Errors;
use kernelopt_shared::digest::Digest;
use libloading::os::unix::{Library, RTLD_NOW, Symbol};

type Launch = unsafe extern "C" fn(*const c_char, u32, u32, *mut *mut c_void) -> i32;

/// The compiled ops. They lie beside this program, named by their content, since every test may be a process of its own.
static LIBRARY: LazyLock<Library> = LazyLock::new(|| {
    let cases: String = Op::ALL
        .iter()
        .map(|op| format!("if (!std::strcmp(name, \"{0}\")) return run({0}, blocks, threads, arguments), 0;\n", op.entry()))
        .collect();
    let entry = format!(
        "extern \"C\" int launch(const char* name, unsigned blocks, unsigned threads, void** arguments) {{\n{cases}return 1;\n}}\n"
    );
    let text = format!("{}\n{SOURCE}\n{entry}", include_str!("emulation.h"));
    let program = std::env::current_exe().expect("this program");
    let library = program.with_file_name(format!("ops-emulation-{}.so", Digest::of([text.as_bytes()])));
    if !library.exists() {
        compile(&text, &library);
    }
    // SAFETY: it was built from our own source, whose initialisers do nothing.
    unsafe { Library::open(Some(&library), RTLD_NOW) }.expect("it loads")
});

fn compile(text: &str, library: &Path) {
    let folder = tempfile::tempdir_in(library.parent().expect("a folder")).expect("a folder");
    let (source, object) = (folder.path().join("ops.cc"), folder.path().join("ops.so"));
    std::fs::write(&source, text).expect("it can be written");
    let options = ["-std=c++20", "-O1", "-w", "-ffp-contract=off", "-fno-strict-aliasing", "-pthread", "-shared", "-fPIC", "-o"];
    let built = Command::new("c++").args(options).arg(&object).arg(&source).output().expect("a C++ compiler");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    // Whole or not at all: another test may be looking.
    std::fs::rename(&object, library).expect("it can be named");
}

/// Ops on the host's memory. Kernels and clocks are those of a simulated device.
pub struct Emulated {
    launch: Symbol<Launch>,
    memory: HashMap<u64, Vec<u128>>,
    scratch: Span,
    rest: SimDevice,
    /// Most blocks of a sum of squares.
    pub error_blocks: u32,
}

impl Emulated {
    pub fn new() -> Self {
        // SAFETY: `launch` has this signature, above.
        let launch = unsafe { LIBRARY.get(c"launch") }.expect("the entry");
        let mut device =
            Self { launch, memory: HashMap::new(), scratch: Span { address: 0, bytes: 0 }, rest: SimDevice::new(1), error_blocks: BLOCKS };
        device.scratch = device.allocate(SCRATCH_BYTES).expect("memory");
        device
    }

    fn slice(&mut self, span: Span) -> &mut [u8] {
        // SAFETY: the suite gives spans of its own allocations only, and uses one at a time.
        unsafe { std::slice::from_raw_parts_mut(span.address as *mut u8, span.bytes as usize) }
    }
}

impl Machine for Emulated {
    fn scratch(&self) -> Span {
        self.scratch
    }

    fn start(&mut self, op: Op, blocks: u32, arguments: &[Argument]) -> Done<()> {
        let mut pointers: Vec<*mut c_void> = arguments.iter().map(Argument::address).collect();
        // Small grids, so that threads stride; but the order of a sum of squares is that of the grid.
        let (blocks, threads) = if op == Op::Errors { (blocks.min(self.error_blocks), THREADS) } else { (blocks.min(3), 4) };
        let name = CString::new(op.entry()).expect("a name");
        // SAFETY: the parameters are those of the op, by `ops::launch`; memory is that of the suite's allocations.
        let status = unsafe { (self.launch)(name.as_ptr(), blocks, threads, pointers.as_mut_ptr()) };
        assert_eq!(status, 0, "{name:?} is there");
        Ok(())
    }

    fn wait(&mut self) -> Done<()> {
        Ok(())
    }

    fn put(&mut self, to: Span, bytes: &[u8]) -> Done<()> {
        self.slice(to).copy_from_slice(bytes);
        Ok(())
    }

    fn get(&mut self, from: Span, bytes: &mut [u8]) -> Done<()> {
        bytes.copy_from_slice(self.slice(from));
        Ok(())
    }
}

impl Device for Emulated {
    fn facts(&self) -> &DeviceFacts {
        self.rest.facts()
    }
    fn state(&mut self) -> DeviceState {
        self.rest.state()
    }
    fn allocate(&mut self, bytes: u64) -> Done<Span> {
        let mut memory = vec![0u128; bytes.div_ceil(16) as usize];
        let address = memory.as_mut_ptr() as u64;
        self.memory.insert(address, memory);
        Ok(Span { address, bytes })
    }
    fn free(&mut self, memory: Span) -> Done<()> {
        self.memory.remove(&memory.address).map(drop).ok_or_else(|| DeviceError::Device("no allocation".into()))
    }
    fn allocated_bytes(&self) -> u64 {
        self.memory.values().map(|words| 16 * words.len() as u64).sum()
    }
    fn upload(&mut self, to: Span, bytes: &[u8]) -> Done<()> {
        self.put(to, bytes)
    }
    fn download(&mut self, from: Span, bytes: &mut [u8]) -> Done<()> {
        self.get(from, bytes)
    }
    fn copy(&mut self, from: Span, to: Span) -> Done<()> {
        let bytes = self.slice(from).to_vec();
        self.put(to, &bytes)
    }
    fn load(&mut self, binary: &Binary) -> Done<KernelId> {
        self.rest.load(binary)
    }
    fn unload(&mut self, kernel: KernelId) -> Done<()> {
        self.rest.unload(kernel)
    }
    fn run(&mut self, steps: &[Step]) -> Done<()> {
        self.rest.run(steps)
    }
    fn time(&mut self, blocks: &[Block]) -> Done<Vec<f64>> {
        self.rest.time(blocks)
    }
    fn sweep(&mut self, from: Span, to: Option<Span>, passes: u32) -> Done<f64> {
        launch::sweep(self, from, to, passes).map(|()| 1.0)
    }
    fn draw(&mut self, to: Elements, draw: &Draw<'_>) -> Done<()> {
        launch::draw(self, to, draw)
    }
    fn poison(&mut self, to: Span, seed: u64) -> Done<()> {
        launch::poison(self, to, seed)
    }
    fn first_unpoisoned(&mut self, span: Span, seed: u64) -> Done<Option<u64>> {
        launch::first_unpoisoned(self, span, seed)
    }
    fn digest(&mut self, span: Span) -> Done<u64> {
        launch::digest(self, span)
    }
    fn widen(&mut self, from: Elements, to: Span) -> Done<()> {
        launch::widen(self, from, to)
    }
    fn errors(&mut self, values: Elements, truth: Span, rounded: Option<Span>, truth_poison: u64) -> Done<Errors> {
        launch::errors(self, values, truth, rounded, truth_poison)
    }
    fn compare(&mut self, what: &Compared, allowance: &Allowance) -> Done<Comparison> {
        launch::compare(self, what, allowance)
    }
    fn first_difference(&mut self, a: Elements, b: Elements) -> Done<Option<u64>> {
        launch::first_difference(self, a, b)
    }
}
