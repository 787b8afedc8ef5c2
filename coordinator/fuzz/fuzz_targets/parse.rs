//! Any bytes: a graph or an error, never a crash. What is read is written back byte for byte, and any text fits any kernel.

#![no_main]

use kernelopt_coordinator::inductor::{ModelFile, Replacements};
use kernelopt_coordinator::inspect::Inspection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let Ok(file) = ModelFile::parse(&text) else { return };
    assert!(file.write(&Replacements::new()).is_ok_and(|written| written == text));
    assert!(Inspection::of_text(&text).is_ok_and(|inspection| !inspection.table().is_empty()));
    let replaceable = file.kernels().iter().find(|kernel| file.replaceable(&kernel.name).is_ok());
    if let Some(kernel) = replaceable {
        let replacements = Replacements::from([(kernel.name.clone(), text.to_string())]);
        assert!(file.write(&replacements).is_ok_and(|written| ModelFile::parse(&written).is_ok()));
    }
});
