//! The program of a child: it loads libavcodec, gives up its rights, and decodes what its parent sends.

mod lock_down;
mod parameter_sets;
mod session;

use std::{io::stdin, os::fd::AsFd, process::ExitCode};

use lock_down::lock_down;
use session::{ChildSession, SessionEnd};

use crate::{
    library::CodecLibrary,
    protocol::{ChildOrder, ChildReply, LoadOrder, receive, send},
    system,
};

/// Runs the program of a child, until the pool that has started it closes its socket. The socket is standard input.
///
/// A program calls this on its first thread, before it opens files or starts others: all descriptors but the first three are closed, and once libavcodec is
/// loaded the whole process can only compute, answer, and exit. It has no other use from then on, so exit with the result.
#[must_use]
pub fn frame_child_main() -> ExitCode {
    frame_child_with(|| ())
}

/// As [`frame_child_main`], and calls `probe` once the process has given up its rights: for tests of what it can do then.
#[doc(hidden)]
#[must_use]
pub fn frame_child_with(probe: impl FnOnce()) -> ExitCode {
    match start(probe) {
        Ok(()) => ExitCode::SUCCESS,
        Err(StartProblem::Foreign(problem)) => {
            eprintln!("this program decodes videos for another one, which starts it: {problem}");
            ExitCode::FAILURE
        }
        // Nothing can be printed any more.
        Err(StartProblem::Locked) => ExitCode::FAILURE,
    }
}

/// Why a child ends.
enum StartProblem {
    /// There is no pool on the other side of standard input.
    Foreign(String),
    /// The pool has broken the protocol, or closed the socket during a request.
    Locked,
}

fn start(probe: impl FnOnce()) -> Result<(), StartProblem> {
    let socket = stdin();
    let socket = socket.as_fd();
    let foreign = |problem: &str| StartProblem::Foreign(problem.to_owned());
    if rustix::net::sockopt::socket_type(socket).is_err() {
        return Err(foreign("standard input is no socket"));
    }
    system::close_inherited(3);
    lock_down::let_allocator_ask();
    let message = receive(socket).map_err(|error| StartProblem::Foreign(format!("standard input: {error}")))?;
    if message.bytes.is_empty() {
        return Ok(());
    }
    let Some(ChildOrder::Load(order)) = ChildOrder::decode(&message.bytes) else {
        return Err(foreign("standard input has something else"));
    };
    // Where the system lacks this, a child ends once it reads from the closed socket.
    message.fd.map(system::die_with);
    let answer = |reply: &ChildReply| send(socket, &reply.encode(), None).map_err(|error| foreign(&error.to_string()));
    let library = match load(&order) {
        Ok(library) => library,
        Err(reply) => return answer(&reply),
    };
    if let Err(problem) = lock_down(order.max_pixels) {
        return answer(&ChildReply::NotLocked(problem));
    }
    probe();
    send(socket, &ChildReply::Ready(library.name().to_owned()).encode(), None).map_err(|_| StartProblem::Locked)?;
    match ChildSession::new(&library, socket).serve() {
        SessionEnd::Closed => Ok(()),
        SessionEnd::Broken => Err(StartProblem::Locked),
    }
}

/// Loads the library, and lets each decoder do what it does only once.
fn load(order: &LoadOrder) -> Result<CodecLibrary, ChildReply> {
    let library = CodecLibrary::load(&order.folders).map_err(ChildReply::NoLibrary)?;
    library.warm_up();
    Ok(library)
}
