//! A cubin before it is loaded: the driver takes a pointer without a length, so what it would read must be there.

use crate::cuda::device::{DeviceError, Done};

/// Largest image in bytes.
const MAX_BYTES: usize = 256 << 20;
const HEADER_BYTES: usize = 64;
const SECTION_HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// `EM_CUDA`.
const MACHINE: u16 = 190;
/// `SHT_NOBITS`: a section that takes no room in the file.
const NO_BITS: u32 = 8;

/// Checks that `image` is a whole 64-bit ELF file for NVIDIA GPUs: its tables and sections lie inside it (System V ABI, chapter 4).
///
/// # Errors
/// [`DeviceError::Image`] says what is missing.
pub(super) fn check(image: &[u8]) -> Done<()> {
    let refused = |what: String| Err(DeviceError::Image(what));
    if image.len() < HEADER_BYTES || image.len() > MAX_BYTES {
        return refused(format!("an image of {} bytes", image.len()));
    }
    if image[..4] != *b"\x7fELF" || image[4] != 2 || image[5] != 1 {
        return refused("it is no 64-bit ELF file".into());
    }
    let machine = half(image, 18);
    if machine != MACHINE {
        return refused(format!("it is for machine {machine}, not for an NVIDIA GPU"));
    }
    let (programs, sections) = (word(image, 32), word(image, 40));
    let (program_size, program_count) = (half(image, 54), half(image, 56));
    let (section_size, section_count) = (half(image, 58), half(image, 60));
    if program_count > 0 && usize::from(program_size) != PROGRAM_HEADER_BYTES
        || usize::from(section_size) != SECTION_HEADER_BYTES
        || section_count == 0
    {
        return refused("its tables have entries of another size".into());
    }
    let inside = |offset: u64, bytes: u64| offset.checked_add(bytes).is_some_and(|end| end <= image.len() as u64);
    let table = |offset: u64, count: u16, size: usize| inside(offset, u64::from(count) * size as u64);
    if !table(programs, program_count, PROGRAM_HEADER_BYTES) || !table(sections, section_count, SECTION_HEADER_BYTES) {
        return refused(format!("it is cut: {} bytes do not hold its tables", image.len()));
    }
    for section in 0..usize::from(section_count) {
        let at = sections as usize + section * SECTION_HEADER_BYTES;
        let kind = u32::from_le_bytes([image[at + 4], image[at + 5], image[at + 6], image[at + 7]]);
        if kind != 0 && kind != NO_BITS && !inside(word(image, at + 24), word(image, at + 32)) {
            return refused(format!("it is cut: section {section} ends behind its {} bytes", image.len()));
        }
    }
    Ok(())
}

fn half(image: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([image[at], image[at + 1]])
}

fn word(image: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&image[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A header, one section of eight bytes, and the section table.
    fn elf() -> Vec<u8> {
        let mut image = vec![0u8; HEADER_BYTES + 8 + 2 * SECTION_HEADER_BYTES];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        image[40..48].copy_from_slice(&72u64.to_le_bytes());
        image[58..60].copy_from_slice(&64u16.to_le_bytes());
        image[60..62].copy_from_slice(&2u16.to_le_bytes());
        let section = 72 + SECTION_HEADER_BYTES;
        image[section + 4] = 1;
        image[section + 24..section + 32].copy_from_slice(&64u64.to_le_bytes());
        image[section + 32..section + 40].copy_from_slice(&8u64.to_le_bytes());
        image
    }

    fn complaint(image: &[u8]) -> String {
        check(image).unwrap_err().to_string()
    }

    #[test]
    fn a_whole_image_passes_and_a_cut_one_does_not() {
        let image = elf();
        assert_eq!(check(&image), Ok(()));
        assert!(complaint(&image[..image.len() - 1]).contains("cut"));
        let mut long = image.clone();
        long[72 + SECTION_HEADER_BYTES + 32] = 255;
        assert!(complaint(&long).contains("section 1"), "{}", complaint(&long));
        let mut host = image;
        host[18] = 62;
        assert!(complaint(&host).contains("machine 62"));
        assert!(complaint(b"").contains("0 bytes"));
        assert!(complaint(&[0; 100]).contains("no 64-bit ELF"));
    }

    /// `kernels.cu`, compiled by NVRTC 13.0 for `sm_90`.
    const REAL: &[u8] = include_bytes!("../../../tests/device_conformance/kernels.sm_90.cubin");

    #[test]
    fn a_compilers_image_passes_and_no_beginning_of_it_does() {
        assert_eq!(check(REAL), Ok(()));
        for length in 0..REAL.len() {
            assert!(check(&REAL[..length]).is_err(), "{length} of {} bytes", REAL.len());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_checked_without_a_panic(changes in prop::collection::vec((0usize..200, any::<u8>()), 0..8)) {
            let mut image = elf();
            for (at, byte) in changes {
                if let Some(place) = image.get_mut(at) {
                    *place = byte;
                }
            }
            let _ = check(&image);
        }
    }
}
