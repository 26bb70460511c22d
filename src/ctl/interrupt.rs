//! Ctrl-C and SIGTERM: the first ends a command in good order, a second one ends the process at once.
//!
//! Only commands that have something to tidy listen; the others end by the signal itself.

use std::{
    future::Future,
    process,
    sync::atomic::{AtomicU8, Ordering},
    thread,
    time::Duration,
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use super::CtlError;

/// How long a command may take to end, once it is interrupted.
const END: Duration = Duration::from_millis(1_200);
/// How long what it has left to other threads may take then.
const TIDY: Duration = Duration::from_millis(500);

/// The exit code that says which signal came first; 0 before.
static CODE: AtomicU8 = AtomicU8::new(0);

/// The exit code of a command that was interrupted: 130 after Ctrl-C, 143 after SIGTERM, as a shell has it.
pub(crate) fn exit_code() -> Option<u8> {
    Some(CODE.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

/// Whether this process was asked to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    asked: watch::Receiver<bool>,
}

impl Interrupt {
    /// Listens from here on, on a thread of its own: the second signal is heeded whatever the others are doing.
    pub(crate) fn listen() -> Result<Self, CtlError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(CtlError::Runtime)?;
        let signals = {
            let _context = runtime.enter();
            let kinds = [SignalKind::interrupt(), SignalKind::terminate()];
            kinds.map(signal)
        };
        let [interrupt, terminate] = signals;
        let (mut interrupt, mut terminate) =
            (interrupt.map_err(CtlError::Runtime)?, terminate.map_err(CtlError::Runtime)?);
        let (ask, asked) = watch::channel(false);
        let wait = async move {
            let code = either(&mut interrupt, &mut terminate).await;
            CODE.store(code, Ordering::Relaxed);
            ask.send_replace(true);
            let code = either(&mut interrupt, &mut terminate).await;
            process::exit(code.into());
        };
        let thread = thread::Builder::new().name("signals".to_owned());
        thread.spawn(move || runtime.block_on(wait)).map_err(CtlError::Runtime)?;
        Ok(Self { asked })
    }

    /// Waits for the first signal.
    pub(crate) async fn asked(&mut self) {
        // The sender lives as long as the process.
        let _ = self.asked.wait_for(|asked| *asked).await.map(drop);
    }

    /// Whether it has come.
    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }
}

/// Waits for either signal; the exit code that says which.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> u8 {
    tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    }
}

/// Runs a command that ends by itself when `Interrupt` says so, and within two seconds in any case.
pub(crate) fn run<T, W>(work: impl FnOnce(Interrupt) -> W) -> Result<T, CtlError>
where
    W: Future<Output = Result<T, CtlError>>,
{
    let interrupt = Interrupt::listen()?;
    let runtime = super::runtime()?;
    let mut limit = interrupt.clone();
    let done = runtime.block_on(async {
        tokio::select! {
            done = work(interrupt) => done,
            () = async { limit.asked().await; tokio::time::sleep(END).await } => Err(CtlError::Interrupted),
        }
    });
    runtime.shutdown_timeout(TIDY);
    done
}

/// The same for one that can be dropped at any time.
pub(crate) fn run_or_drop<T>(work: impl Future<Output = Result<T, CtlError>>) -> Result<T, CtlError> {
    run(|mut interrupt| async move {
        tokio::select! {
            done = work => done,
            () = interrupt.asked() => Err(CtlError::Interrupted),
        }
    })
}
