//! Returns the pages to the system that loading this library took: relocations, which nothing reads again, and code
//! that runs once. They are pages of the file, so a page that is used again comes from the system's cache.

#![allow(unsafe_code)]

use std::{
    ffi::{c_int, c_void},
    fs,
};

/// Unmaps all pages of this library that equal its file. Does nothing while a debugger is attached, because its
/// breakpoints are changes of such pages.
pub(crate) fn give_back() {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|pid| pid.trim() == "0")) {
        // SAFETY: `give_back_of_own` has the type of a callback, and keeps nothing of what it is passed.
        unsafe { libc::dl_iterate_phdr(Some(give_back_of_own), std::ptr::null_mut()) };
    }
}

/// Unmaps the pages if the object is this library; returns a number other than 0 if it is, which ends the iteration.
extern "C" fn give_back_of_own(info: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr(3) passes a valid object, whose program headers are there as long as it is loaded.
    let (base, headers) = unsafe {
        let info = &*info;
        (info.dlpi_addr, std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)))
    };
    let own = give_back as fn() as usize as u64;
    let segments = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD);
    let span = |header: &libc::Elf64_Phdr| (base + header.p_vaddr)..(base + header.p_vaddr + header.p_filesz);
    if !segments().any(|header| span(header).contains(&own)) {
        return 0;
    }
    // SAFETY: sysconf(3) takes any number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.unsigned_abs();
    for header in segments().filter(|header| header.p_flags & libc::PF_W == 0) {
        let (start, end) = (span(header).start.next_multiple_of(page), span(header).end / page * page);
        if start < end {
            // SAFETY: the segment is a private mapping of a file that was never writable, so its pages are those of the
            // file, and each comes back from there when it is used again. Pages that it may share with others are left.
            unsafe { libc::madvise(start as *mut c_void, (end - start) as usize, libc::MADV_DONTNEED) };
        }
    }
    1
}
