//! The kernel that normalises pictures, as PTX text that the driver compiles for its device.
//!
//! It is PTX and not CUDA C, so that users need only the driver: no NVRTC, no toolkit, and no other library with a
//! matching version. It does no arithmetic on pixels: it looks each byte up in a table of 256 entries per channel,
//! which the host computes in the same way as a worker. The tables have 1.5 or 3 KiB and stay in the first-level
//! cache, and the kernel is bound by memory, as it would be if it computed the values.

/// Threads of a block, which is also the number of pixels that a block processes at a time.
pub(super) const BLOCK: u32 = 256;
/// The largest number of blocks along the second dimension of a grid.
pub(super) const MAX_BLOCKS_Y: u32 = 65535;

/// Returns the name of the kernel for elements of this many bytes.
pub(super) const fn name(element_bytes: usize) -> &'static str {
    match element_bytes {
        2 => "spdl_normalise_b16",
        _ => "spdl_normalise_b32",
    }
}

/// Returns the kernel for elements of 2 or 4 bytes. ISA 6.0 and sm_50 are the oldest versions with all it needs; a
/// driver compiles them for any later device.
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
