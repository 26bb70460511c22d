//! Servers of a test, each on a thread of its own with a runtime, which stop when they are dropped.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread::{self, JoinHandle},
};

use tokio::sync::oneshot;

/// A running server.
pub(crate) struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(serve: impl Future<Output = ()> + Send + 'static) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                tokio::select! {
                    () = serve => {}
                    _ = stopped => {}
                }
            });
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed. A second panic here would hide the test's own.
            let _ = thread.join();
        }
    }
}

/// Listens on a free loopback port, for a runtime.
pub(crate) fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free loopback port");
    listener.set_nonblocking(true).expect("a socket that can be non-blocking");
    let address = listener.local_addr().expect("a bound socket has an address");
    (listener, address)
}
