//! What a cubin says of itself (ELF for NVIDIA's machine): kernels, their parameters, their static shared memory.
//!
//! The process that made it ran untrusted source, and the driver takes an image without a length and arguments without types: so
//! both are looked at here. Layout: `elf.h`; sections `.text.NAME`, `.nv.info.NAME`, `.nv.shared.NAME`, as CUDA 12 and 13 write them.

use std::collections::BTreeMap;

/// A cubin that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// By name.
    pub kernels: BTreeMap<String, Kernel>,
}

/// One kernel of a cubin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kernel {
    /// Bytes of each parameter, in order.
    pub parameters: Vec<u32>,
    /// Shared memory of a block whose size is fixed in the code, in bytes; what the system keeps for itself is not counted.
    pub static_shared_bytes: u32,
}

/// The bytes are no cubin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a cubin: {0}")]
pub struct ImageError(&'static str);

const ELF_MAGIC: &[u8] = b"\x7fELF\x02\x01";
const MACHINE_CUDA: u16 = 190;
const SECTION_BYTES: usize = 64;
const NO_BITS: u32 = 8;
/// Kept by the system in each block from compute capability 8.0 on; counted in a section's size from 9.0 on.
pub(super) const RESERVED_SHARED_BYTES: u32 = 1024;
/// An attribute with a payload of the given size.
const FORMAT_SIZED: u8 = 4;
/// `EIATTR_KPARAM_INFO`: number, offset and size of a parameter.
const PARAMETER_INFO: u8 = 0x17;

struct Section<'a> {
    name: &'a str,
    kind: u32,
    bytes: u64,
    content: &'a [u8],
}

impl Image {
    /// Reads a cubin's tables.
    ///
    /// # Errors
    /// The bytes are not one: cut, or another machine's.
    pub fn read(cubin: &[u8]) -> Result<Self, ImageError> {
        let sections = sections(cubin).ok_or(ImageError("its section table cannot be read"))?;
        let mut kernels: BTreeMap<String, Kernel> = BTreeMap::new();
        let reserves = sections.iter().any(|section| section.name.starts_with(".nv.shared.reserved."));
        for section in &sections {
            if let Some(name) = section.name.strip_prefix(".nv.info.") {
                let parameters = parameters(section.content).ok_or(ImageError("a kernel's parameters cannot be read"))?;
                kernels.entry(name.into()).or_default().parameters = parameters;
            } else if let Some(name) = section.name.strip_prefix(".nv.shared.").filter(|name| !name.starts_with("reserved.")) {
                let reserved = if reserves { RESERVED_SHARED_BYTES } else { 0 };
                let bytes = u32::try_from(section.bytes).map_err(|_| ImageError("shared memory beyond 4 GiB"))?;
                kernels.entry(name.into()).or_default().static_shared_bytes = bytes.saturating_sub(reserved);
            }
        }
        kernels.retain(|name, _| sections.iter().any(|section| section.name.strip_prefix(".text.") == Some(name)));
        Ok(Self { kernels })
    }
}

fn sections(cubin: &[u8]) -> Option<Vec<Section<'_>>> {
    if !cubin.starts_with(ELF_MAGIC) || u16_at(cubin, 0x12)? != MACHINE_CUDA || usize::from(u16_at(cubin, 0x3a)?) != SECTION_BYTES {
        return None;
    }
    let (table, count, names) = (usize_at(cubin, 0x28)?, u16_at(cubin, 0x3c)?, u16_at(cubin, 0x3e)?);
    let header = |index: u16| cubin.get(table.checked_add(usize::from(index) * SECTION_BYTES)?..)?.get(..SECTION_BYTES);
    let content = |header: &[u8]| -> Option<&[u8]> {
        if u32_at(header, 4)? == NO_BITS {
            return Some(&[]);
        }
        cubin.get(usize_at(header, 24)?..)?.get(..usize_at(header, 32)?)
    };
    let names = content(header(names)?)?;
    let read = |index| {
        let header = header(index)?;
        let name = names.get(u32_at(header, 0)? as usize..)?.split(|&byte| byte == 0).next()?;
        let name = std::str::from_utf8(name).ok()?;
        Some(Section { name, kind: u32_at(header, 4)?, bytes: u64_at(header, 32)?, content: content(header)? })
    };
    (0..count).map(read).filter(|section| section.as_ref().is_none_or(|section| section.kind != 0)).collect()
}

/// Sizes of a kernel's parameters from its attributes: format, number, 16 bits of value, and a payload for some.
fn parameters(mut info: &[u8]) -> Option<Vec<u32>> {
    let mut found = BTreeMap::new();
    while !info.is_empty() {
        let (head, rest) = info.split_at_checked(4)?;
        let payload = if head[0] == FORMAT_SIZED { rest.get(..usize::from(u16_at(head, 2)?))? } else { &[] };
        if head[0] == FORMAT_SIZED && head[1] == PARAMETER_INFO {
            found.insert(u16_at(payload, 4)?, u32_at(payload, 8)? >> 18);
        }
        info = &rest[payload.len()..];
    }
    found.keys().copied().eq(0..u16::try_from(found.len()).ok()?).then(|| found.into_values().collect())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn usize_at(bytes: &[u8], at: usize) -> Option<usize> {
    u64_at(bytes, at)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn attributes_give_the_parameters() {
        let info = |ordinal: u8, flags: u32| {
            let mut bytes = vec![4, 0x17, 12, 0, 0, 0, 0, 0, ordinal, 0, 0, 0];
            bytes.extend_from_slice(&flags.to_le_bytes());
            bytes
        };
        // Last first, as the assembler writes them, between attributes of other formats.
        let bytes = [vec![3, 0x50, 0, 0], info(1, 0x0011_f000), vec![2, 0x4c, 1, 0], info(0, 0x0021_f400)].concat();
        assert_eq!(parameters(&bytes), Some(vec![8, 4]));
        assert_eq!(parameters(&bytes[..bytes.len() - 1]), None);
        assert_eq!(parameters(&info(1, 0x0021_f000)), None);
        assert_eq!(parameters(&[]), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Image::read(&bytes);
            let _ = Image::read(&[ELF_MAGIC, &bytes].concat());
            let _ = parameters(&bytes);
        }
    }
}
