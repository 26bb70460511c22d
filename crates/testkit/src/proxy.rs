//! A store that fails on purpose: an HTTP proxy on a loopback port before a real server. It injects faults by a seeded
//! script or as the test orders them, and records all requests. It stops when dropped.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::background::{Background, listen};

/// Bytes that a response sends at once where the bytes per second are limited.
const PIECE_BYTES: usize = 16 << 10;
/// Number of pieces per second of a body that drips.
const DRIPS_PER_S: u64 = 4;
/// The most bytes in the head of a request or a response.
const MAX_HEAD_BYTES: usize = 16 << 10;

/// A fault of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestFault {
    /// The response has this status, with or without a Retry-After in seconds.
    Status(u16, Option<u64>),
    /// The connection is reset before a response.
    Reset,
    /// No response comes, and the connection stays open.
    Silence,
    /// Half of the body comes, then nothing; the connection stays open.
    Stall,
    /// The body comes at this many bytes per second.
    Drip(u64),
    /// Half of the body comes, then the connection is closed.
    Truncated,
    /// Half of the body comes, and Content-Length matches the half.
    Short,
    /// One byte in the middle of the body is changed.
    FlippedByte,
    /// The response contains another range than the requested one.
    OtherRange,
    /// The response contains the whole object instead of the requested range.
    WholeObject,
    /// The response is delayed.
    Slow(Duration),
}

/// The faults that occur without orders. They depend only on the seed, the object, the range and the attempt, never on
/// time or on the order of requests.
#[derive(Clone, Debug, Default)]
pub struct FaultScript {
    /// The seed of all draws.
    pub seed: u64,
    /// One request in this many fails, with one of `faults`; 0 for none.
    pub one_request_in: u64,
    /// The faults to draw from.
    pub faults: Vec<RequestFault>,
    /// Latency of each response.
    pub latency: Duration,
    /// One object in this many has ten times the latency; 0 for none.
    pub one_slow_object_in: u64,
    /// The end of the path of one object, and the latency of its responses.
    pub slow_object: Option<(String, Duration)>,
    /// Bytes per second of all responses together; 0 for no limit.
    pub bytes_per_s: u64,
    /// Requests per second; those beyond it are answered with status 503 and a Retry-After of a second. 0 for no limit.
    pub requests_per_s: u64,
}

impl FaultScript {
    /// Whether the object is slow.
    pub fn is_slow(&self, path: &str) -> bool {
        self.one_slow_object_in > 0 && hash(self.seed, &[path]).is_multiple_of(self.one_slow_object_in)
    }

    fn fault(&self, path: &str, range: &str, nth: u64) -> Option<RequestFault> {
        let draw = hash(self.seed, &[path, range, &nth.to_string()]);
        let fails = self.one_request_in > 0 && draw.is_multiple_of(self.one_request_in);
        fails.then(|| self.faults[(draw / self.one_request_in) as usize % self.faults.len()])
    }
}

/// Hashes the seed and the parts with FNV-1a and a final round of mixing.
fn hash(seed: u64, parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0]));
    let all = seed.to_le_bytes().into_iter().chain(bytes);
    let mut hash =
        all.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ hash >> 32
}

/// A fault that the test ordered for the next requests of objects whose path ends in `suffix`.
#[derive(Clone, Debug)]
struct OrderedFault {
    suffix: String,
    /// Number of requests that pass before the first fault.
    skip: u64,
    times: u64,
    fault: RequestFault,
}

#[derive(Debug, Default)]
struct ProxyState {
    script: FaultScript,
    orders: Vec<OrderedFault>,
    /// Number of requests so far by path and range.
    asked: HashMap<(String, String), u64>,
    requests: Vec<ReceivedRequest>,
    /// When the bytes that were sent so far will have passed a link with limited bytes per second.
    link_free: Option<Instant>,
    /// When the rate of requests that is allowed has caught up with the requests that were answered so far.
    requests_due: Option<Instant>,
}

/// A request that the proxy received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The path of the object.
    pub path: String,
    /// The requested range, as in the header.
    pub range: String,
    /// The fault that was injected.
    pub fault: Option<RequestFault>,
    /// When the request came.
    pub at: Instant,
}

impl ProxyState {
    /// Records a request and returns its delay and its fault.
    fn decide(&mut self, path: &str, range: &str) -> (Duration, Option<RequestFault>) {
        let nth = self.asked.entry((path.to_owned(), range.to_owned())).or_default();
        *nth += 1;
        let scripted = self.script.fault(path, range, *nth);
        let order = self.orders.iter_mut().find(|order| path.ends_with(&order.suffix) && order.times > 0);
        let ordered = order.and_then(|order| match order.skip {
            0 => {
                order.times -= 1;
                Some(order.fault)
            }
            _ => {
                order.skip -= 1;
                None
            }
        });
        let too_many = self.is_too_many().then_some(RequestFault::Status(503, Some(1)));
        let fault = ordered.or(scripted).or(too_many);
        self.requests.push(ReceivedRequest {
            path: path.to_owned(),
            range: range.to_owned(),
            fault,
            at: Instant::now(),
        });
        let slowness = if self.script.is_slow(path) { 10 } else { 1 };
        match (fault, &self.script.slow_object) {
            (Some(RequestFault::Slow(time)), _) => (time, None),
            (fault, Some((suffix, latency))) if path.ends_with(suffix) => (*latency, fault),
            (fault, _) => (self.script.latency * slowness, fault),
        }
    }
}

impl ProxyState {
    /// Returns whether a request exceeds the requests per second that are allowed. A tenth of a second's requests may
    /// come at once.
    fn is_too_many(&mut self) -> bool {
        let rate = self.script.requests_per_s;
        if rate == 0 {
            return false;
        }
        let now = Instant::now();
        let due = self.requests_due.map_or(now, |due| due.max(now));
        let is_too_many = due.saturating_duration_since(now) > Duration::from_millis(100);
        self.requests_due = Some(if is_too_many { due } else { due + Duration::from_secs_f64(1.0 / rate as f64) });
        is_too_many
    }

    /// Returns when the next bytes may be sent.
    fn pass_link(&mut self, bytes: usize) -> Option<Instant> {
        let rate = self.script.bytes_per_s;
        if rate == 0 {
            return None;
        }
        let start = self.link_free.map_or_else(Instant::now, |free| free.max(Instant::now()));
        self.link_free = Some(start + Duration::from_secs_f64(bytes as f64 / rate as f64));
        self.link_free
    }
}

/// What was read of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RangesRead {
    /// Number of requests.
    pub requests: u64,
    /// Bytes of their ranges.
    pub bytes: u64,
}

/// A running proxy.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Mutex<ProxyState>>,
    _server: Background,
}

impl Proxy {
    /// Starts a proxy, without faults, before the server at `upstream`.
    pub fn start(upstream: SocketAddr) -> Self {
        let (listener, address) = listen();
        let shared = Arc::<Mutex<ProxyState>>::default();
        let server = Background::start(accept(listener, upstream, shared.clone()));
        Self { address, shared, _server: server }
    }

    /// Returns the address that the proxy listens on.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the same object through the proxy.
    pub fn before(&self, url: &str) -> String {
        let (_, rest) = url.split_once("://").expect("a URL");
        let (_, path) = rest.split_once('/').unwrap_or((rest, ""));
        format!("http://{}/{path}", self.address)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, ProxyState> {
        self.shared.lock().expect("no test panics with the lock")
    }

    /// Injects faults by this script from now on.
    pub fn follow(&self, script: FaultScript) {
        self.state().script = script;
    }

    /// Orders `fault` for `times` requests of objects whose path ends in `suffix`, after `skip` requests without it.
    pub fn order(&self, suffix: &str, skip: u64, times: u64, fault: RequestFault) {
        self.state().orders.push(OrderedFault { suffix: suffix.to_owned(), skip, times, fault });
    }

    /// Cancels all orders.
    pub fn forget_orders(&self) {
        self.state().orders.clear();
    }

    /// Returns the number of ordered faults that have not occurred yet.
    pub fn open_orders(&self) -> u64 {
        self.state().orders.iter().map(|order| order.times).sum()
    }

    /// Returns the requests so far for ranges of objects whose path ends in `suffix`, and these ranges' bytes.
    ///
    /// # Panics
    /// If one of them was not for a range with two ends.
    pub fn read_of(&self, suffix: &str) -> RangesRead {
        let mut sum = RangesRead::default();
        for request in self.state().requests.iter().filter(|request| request.path.ends_with(suffix)) {
            let (start, end) =
                request.range.strip_prefix("bytes=").and_then(|range| range.split_once('-')).expect("a range");
            let number = |text: &str| text.parse::<u64>().expect("a number");
            sum.requests += 1;
            sum.bytes += number(end) + 1 - number(start);
        }
        sum
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.state().requests.clone()
    }
}

async fn accept(listener: std::net::TcpListener, upstream: SocketAddr, shared: Arc<Mutex<ProxyState>>) {
    let listener = TcpListener::from_std(listener).expect("a socket of this runtime");
    loop {
        let (client, _) = listener.accept().await.expect("a listening socket");
        client.set_nodelay(true).expect("a TCP socket");
        // An error is a client that has disconnected, which is normal.
        tokio::spawn(serve(client, upstream, shared.clone()));
    }
}

/// Serves a client's connection until the client or a fault ends it.
async fn serve(mut client: TcpStream, upstream: SocketAddr, shared: Arc<Mutex<ProxyState>>) -> std::io::Result<()> {
    let mut server: Option<TcpStream> = None;
    loop {
        let (head, _) = read_head(&mut client).await?;
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let range = header(&head, "range").unwrap_or_default().to_owned();
        let (delay, fault) = shared.lock().expect("no test panics with the lock").decide(&target, &range);
        tokio::time::sleep(delay).await;
        match fault {
            Some(RequestFault::Status(status, retry_after)) => {
                let after = retry_after.map_or_else(String::new, |seconds| format!("Retry-After: {seconds}\r\n"));
                let answer = format!("HTTP/1.1 {status} Ordered\r\n{after}Content-Length: 0\r\n\r\n");
                client.write_all(answer.as_bytes()).await?;
                continue;
            }
            Some(RequestFault::Reset) => {
                client.set_zero_linger()?;
                return Ok(());
            }
            Some(RequestFault::Silence) => return until_closed(&mut client).await,
            _ => {}
        }
        let mut to_server = match server.take() {
            Some(server) => server,
            None => TcpStream::connect(upstream).await?,
        };
        to_server.write_all(rewritten(&head, &range, fault).as_bytes()).await?;
        if !answer(&head, &mut client, &mut to_server, fault, &shared).await? {
            return Ok(());
        }
        server = Some(to_server);
    }
}

/// Forwards a response with its fault; returns `false` when the connection ends.
async fn answer(
    request: &str,
    client: &mut TcpStream,
    server: &mut TcpStream,
    fault: Option<RequestFault>,
    shared: &Mutex<ProxyState>,
) -> std::io::Result<bool> {
    let (mut head, mut body) = read_head(server).await?;
    let status = head.split(' ').nth(1).unwrap_or_default();
    let is_empty = request.starts_with("HEAD") || matches!(status, "304" | "204");
    let length = header(&head, "content-length").map_or(0, |text| text.parse().expect("a length"));
    let is_good = status.starts_with('2');
    if !is_empty {
        let read = body.len();
        body.resize(length, 0);
        server.read_exact(&mut body[read..]).await?;
    }
    let half = body.len() / 2;
    match fault.filter(|_| is_good && !is_empty) {
        Some(RequestFault::FlippedByte) if !body.is_empty() => body[half] ^= 0x55,
        Some(RequestFault::Short) => {
            head = head.replacen(&format!("ontent-length: {length}"), &format!("ontent-length: {half}"), 1);
            body.truncate(half);
        }
        Some(RequestFault::Stall) => {
            client.write_all(&[head.as_bytes(), &body[..half]].concat()).await?;
            until_closed(client).await?;
            return Ok(false);
        }
        Some(RequestFault::Drip(bytes_per_s)) => {
            client.write_all(head.as_bytes()).await?;
            for piece in body.chunks((bytes_per_s / DRIPS_PER_S).max(1) as usize) {
                client.write_all(piece).await?;
                tokio::time::sleep(Duration::from_secs(1) / DRIPS_PER_S as u32).await;
            }
            return Ok(true);
        }
        Some(RequestFault::Truncated) => {
            client.write_all(&[head.as_bytes(), &body[..half]].concat()).await?;
            return Ok(false);
        }
        _ => {}
    }
    client.write_all(head.as_bytes()).await?;
    for piece in body.chunks(PIECE_BYTES) {
        let at = shared.lock().expect("no test panics with the lock").pass_link(piece.len());
        if let Some(at) = at {
            tokio::time::sleep_until(at.into()).await;
        }
        client.write_all(piece).await?;
    }
    Ok(true)
}

/// Returns the head of a request as the server receives it.
fn rewritten(head: &str, range: &str, fault: Option<RequestFault>) -> String {
    let bounds = || {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse::<u64>().ok()?, last.parse::<u64>().ok()?))
    };
    match (fault, bounds()) {
        (Some(RequestFault::OtherRange), Some((first, last))) => {
            head.replacen(range, &format!("bytes={first}-{}", last.saturating_sub(1).max(first)), 1)
        }
        (Some(RequestFault::WholeObject), Some(_)) => {
            head.split_inclusive("\r\n").filter(|line| !line.to_ascii_lowercase().starts_with("range:")).collect()
        }
        _ => head.to_owned(),
    }
}

/// Reads the head of a message up to its empty line, with header names in lower case for comparisons. Returns it with
/// the part of the body that was read with it.
async fn read_head(stream: &mut TcpStream) -> std::io::Result<(String, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let body = bytes.split_off(end + 4);
            return Ok((String::from_utf8_lossy(&bytes).into_owned(), body));
        }
        if bytes.len() > MAX_HEAD_BYTES || stream.read_buf(&mut bytes).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = head.lines().filter_map(|line| line.split_once(':'));
    lines.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
}

/// Sends nothing until the client disconnects.
async fn until_closed(client: &mut TcpStream) -> std::io::Result<()> {
    let mut ignored = [0; 1024];
    while client.read(&mut ignored).await? > 0 {}
    Ok(())
}
