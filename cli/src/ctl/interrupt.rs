//! Ctrl-C and SIGTERM: the first signal ends a command gracefully, the second ends the process at once.
//!
//! Only commands that have something to clean up handle the signals; the first signal kills the others.

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

/// How long an interrupted command may take to end.
const END: Duration = Duration::from_millis(1_200);
/// How long the runtime waits after that for work on other threads.
const TIDY: Duration = Duration::from_millis(500);

/// The exit code for the first signal; 0 until one arrives.
static CODE: AtomicU8 = AtomicU8::new(0);

/// Returns the exit code of a command that was interrupted: 130 after Ctrl-C, 143 after SIGTERM, as shells report them.
pub(crate) fn exit_code() -> Option<u8> {
    Some(CODE.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

/// A handle that reports whether this process received a signal to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    asked: watch::Receiver<bool>,
}

impl Interrupt {
    /// Starts to handle the signals, on a thread of its own, so that the second signal works while all other threads
    /// are busy.
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

    /// Whether the first signal has arrived.
    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }
}

/// Waits for either signal and returns its exit code.
async fn either(interrupt: &mut Signal, terminate: &mut Signal) -> u8 {
    tokio::select! {
        _ = interrupt.recv() => 130,
        _ = terminate.recv() => 143,
    }
}

/// Runs a command that ends by itself when its [`Interrupt`] is signalled. Ends it within two seconds of the signal in
/// any case.
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

/// Runs a command whose future may be dropped at any time, and drops it at the first signal.
pub(crate) fn run_or_drop<T>(work: impl Future<Output = Result<T, CtlError>>) -> Result<T, CtlError> {
    run(|mut interrupt| async move {
        tokio::select! {
            done = work => done,
            () = interrupt.asked() => Err(CtlError::Interrupted),
        }
    })
}
