//! A real etcd on loopback: the one on `PATH`, or Debian's package unpacked into the build directory without root.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use crate::{LONG, debian, ports};

/// A running etcd of one member; killed when dropped.
pub struct EtcdProcess {
    binary: PathBuf,
    data: tempfile::TempDir,
    /// `host:port` for clients.
    pub address: String,
    /// `host:port` of its health endpoint, without TLS.
    health: String,
    /// Folder of its TLS certificate; with one, etcd also requires client certificates.
    certs: Option<PathBuf>,
    child: Child,
}

impl EtcdProcess {
    /// Starts an empty etcd. Returns `None`, and prints the reason, where there is no etcd.
    pub fn start() -> Option<Self> {
        Self::start_with(None)
    }

    /// Starts an empty etcd, over TLS if given the folder of a certificate.
    pub fn start_with(certs: Option<&Path>) -> Option<Self> {
        let binary = match debian::program("etcd", "etcd-server") {
            Ok(binary) => binary,
            Err(reason) => {
                crate::skipped(format_args!("no etcd: {reason}"));
                return None;
            }
        };
        // In memory where possible: a busy disk makes etcd slow.
        let data = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder");
        let [address, health] = [(); 2].map(|()| ports::lasting());
        let certs = certs.map(Path::to_owned);
        let child = spawn(&binary, data.path(), &address, &health, certs.as_deref());
        let etcd = Self { binary, data, address, health, certs, child };
        etcd.wait();
        Some(etcd)
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again with the same data and addresses.
    pub fn restart(&mut self) {
        self.kill();
        self.child = spawn(&self.binary, self.data.path(), &self.address, &self.health, self.certs.as_deref());
        self.wait();
    }

    /// Suspends it with SIGSTOP; its sockets stay open.
    pub fn pause(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::STOP).expect("etcd runs");
        // Until then its other threads may still answer.
        waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED).expect("etcd stops");
    }

    /// Continues it with SIGCONT.
    pub fn go_on(&self) {
        kill_process(Pid::from_child(&self.child), Signal::CONT).expect("etcd runs");
    }

    /// Returns the number of changes so far.
    pub fn revision(&self) -> u64 {
        let answer = http(&self.address, "POST /v3/kv/range", r#"{"key":"AA=="}"#).expect("etcd answers");
        let (_, rest) = answer.split_once("\"revision\":\"").unwrap_or_else(|| panic!("no revision in {answer}"));
        rest.split('"').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
    }

    fn wait(&self) {
        let deadline = Instant::now() + LONG;
        while !http(&self.health, "GET /health", "").is_some_and(|answer| answer.contains("\"true\"")) {
            assert!(Instant::now() < deadline, "etcd does not get well");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn spawn(binary: &Path, data: &Path, address: &str, health: &str, certs: Option<&Path>) -> Child {
    let client = format!("{}://{address}", if certs.is_some() { "https" } else { "http" });
    // The kernel kills etcd when the test process ends, however that ends.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(binary).arg("--data-dir").arg(data);
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.arg(format!("--listen-metrics-urls=http://{health}"));
    if let Some(certs) = certs {
        command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(certs.join("ca.pem"));
        command.arg("--cert-file").arg(certs.join("cert.pem")).arg("--key-file").arg(certs.join("key.pem"));
    }
    // It is the only member: no peer ever connects.
    command.args(["--listen-peer-urls", "http://127.0.0.1:0", "--initial-advertise-peer-urls", "http://127.0.0.1:1"]);
    command.args(["--initial-cluster", "default=http://127.0.0.1:1"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("etcd starts")
}

/// Sends a request over HTTP and returns the whole response, if there is one.
fn http(address: &str, request: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(LONG)).ok()?;
    let length = body.len();
    write!(stream, "{request} HTTP/1.0\r\nHost: etcd\r\nContent-Length: {length}\r\n\r\n{body}").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
