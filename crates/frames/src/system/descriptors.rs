//! The descriptors of a child.

use std::{
    io,
    os::fd::{IntoRawFd, OwnedFd},
};

/// The command that chooses the signal of a descriptor with `O_ASYNC`: Linux has it, and `libc` does not.
const F_SETSIG: libc::c_int = 10;

/// Closes all descriptors from `first` on. What a process inherits by mistake stays open otherwise.
pub(crate) fn close_inherited(first: u32) {
    // SAFETY: the call takes numbers and no pointers. The caller is at the beginning of its program, which has opened none of
    // these itself. A system without the call leaves them open.
    unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
}

/// Lets the kernel kill this process as soon as the other end of a pipe is closed. The pipe stays open for as long as the process runs.
pub(crate) fn die_with(pipe: OwnedFd) -> io::Result<()> {
    let fd = pipe.into_raw_fd();
    let own = libc::c_int::try_from(std::process::id()).map_err(io::Error::other)?;
    for (command, argument) in [(F_SETSIG, libc::SIGKILL), (libc::F_SETOWN, own), (libc::F_SETFL, libc::O_ASYNC)] {
        // SAFETY: these commands take a number and no pointers; the descriptor is open and stays so.
        if unsafe { libc::fcntl(fd, command, argument) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
