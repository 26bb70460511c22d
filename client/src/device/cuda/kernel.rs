//! The kernel that normalises pictures, as the text that the driver compiles for its device.
//!
//! It is PTX and not CUDA C, so that a user's machine needs the driver and nothing else: no NVRTC, no toolkit, no second
//! library whose version has to fit. It has no arithmetic on pixels to get wrong: what each byte becomes is looked up
//! in a table of 256 entries per channel, made on the host in the same way as a worker makes it. The tables are 1.5 or
//! 3 KiB and stay in the first-level cache, and the kernel is bound by memory as one that computes would be.

/// Threads of a block, and pixels that it takes at a time.
pub(super) const BLOCK: u32 = 256;
/// Most blocks along the second side of a grid.
pub(super) const MAX_BLOCKS_Y: u32 = 65535;

/// The kernel's name for elements of so many bytes.
pub(super) const fn name(element_bytes: usize) -> &'static str {
    match element_bytes {
        2 => "spdl_normalise_b16",
        _ => "spdl_normalise_b32",
    }
}

/// The kernel for elements of 2 or 4 bytes. ISA 6.0 and sm_50 are the oldest that have all it needs; a driver
/// compiles them for any later device.
pub(super) fn ptx(element_bytes: usize) -> String {
    let table_bytes = 256 * element_bytes;
    TEMPLATE
        .replace("@NAME@", name(element_bytes))
        .replace("@BITS@", &format!("b{}", 8 * element_bytes))
        .replace("@BYTES@", &element_bytes.to_string())
        .replace("@TABLE1@", &table_bytes.to_string())
        .replace("@TABLE2@", &(2 * table_bytes).to_string())
}

const TEMPLATE: &str = include_str!("normalise.ptx");
