//! An S3 server for measurements: it serves the files of a folder with a given latency, lists them in pages, and costs
//! little CPU time. It checks no signatures, and hashes no content: an etag stands for a path and a size.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use spdl_types::Fingerprint;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

/// The name of the only bucket.
pub(crate) const BUCKET: &str = "bucket";
const PAGE: usize = 1000;

/// The files of a folder, as objects.
struct Objects {
    root: PathBuf,
    /// Keys and sizes of the files there were at the start, by key.
    listed: Vec<(String, u64)>,
    latency: Duration,
}

/// Starts a server on a thread of its own, which ends with the process.
pub(crate) fn serve(root: &Path, latency: Duration) -> SocketAddr {
    let mut listed = Vec::new();
    list(root, "", &mut listed);
    listed.sort_unstable();
    let objects = Arc::new(Objects { root: root.to_owned(), listed, latency });
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.set_nonblocking(true).expect("a socket that can be non-blocking");
    let address = listener.local_addr().expect("a bound socket");
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a socket of this runtime");
            while let Ok((socket, _)) = listener.accept().await {
                // An error is a client that has disconnected, which is normal.
                let objects = objects.clone();
                tokio::spawn(async move { drop(objects.answer_all(socket).await) });
            }
        });
    });
    address
}

fn list(folder: &Path, prefix: &str, listed: &mut Vec<(String, u64)>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        let key = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let facts = entry.metadata().expect("facts about a file");
        if facts.is_dir() { list(&entry.path(), &format!("{key}/"), listed) } else { listed.push((key, facts.len())) }
    }
}

fn etag(key: &str, bytes: u64) -> String {
    format!("\"{}\"", Fingerprint::of(format!("{key} {bytes}").as_bytes()))
}

impl Objects {
    async fn answer_all(&self, mut socket: TcpStream) -> std::io::Result<()> {
        socket.set_nodelay(true)?;
        let (reading, mut writing) = socket.split();
        let mut lines = BufReader::new(reading).lines();
        let (mut target, mut range, mut is_head) = (String::new(), None, false);
        while let Some(line) = lines.next_line().await? {
            if !line.is_empty() {
                if let Some(value) = line.strip_prefix("range: bytes=").or(line.strip_prefix("Range: bytes=")) {
                    range = value.split_once('-').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
                } else if target.is_empty() {
                    is_head = line.starts_with("HEAD ");
                    line.split(' ').nth(1).unwrap_or_default().clone_into(&mut target);
                }
                continue;
            }
            tokio::time::sleep(self.latency).await;
            let (head, body) = self.answer(&std::mem::take(&mut target), range.take());
            writing.write_all(head.as_bytes()).await?;
            if !is_head {
                writing.write_all(&body).await?;
            }
        }
        Ok(())
    }

    /// Returns the head and the body of the answer to a request of `target`, or of bytes `first..=last` of it.
    fn answer(&self, target: &str, range: Option<(u64, u64)>) -> (String, Vec<u8>) {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if query.contains("list-type=2") {
            return self.page(query);
        }
        let key = path.strip_prefix('/').and_then(|path| path.strip_prefix(BUCKET)).unwrap_or_default();
        let key = key.trim_start_matches('/');
        let Ok(file) = fs::File::open(self.root.join(key)) else {
            return ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(), Vec::new());
        };
        let bytes = file.metadata().expect("facts about a file").len();
        let (first, end) = range.map_or((0, bytes), |(first, last)| (first, bytes.min(last + 1)));
        let mut body = vec![0; end.saturating_sub(first) as usize];
        file.read_exact_at(&mut body, first).expect("a file that can be read");
        let status = match range {
            Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {first}-{}/{bytes}", end - 1),
            None => "200 OK".to_owned(),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {}\r\nLast-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n",
            body.len(),
            etag(key, bytes)
        );
        (head, body)
    }

    fn page(&self, query: &str) -> (String, Vec<u8>) {
        let value = |name: &str| {
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
        };
        let prefix = value("prefix").replace("%2F", "/");
        let all: Vec<_> = self.listed.iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
        let first: usize = value("continuation-token").parse().unwrap_or(0);
        let end = (first + PAGE).min(all.len());
        let mut page = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>");
        for (key, bytes) in &all[first..end] {
            let etag = etag(key, *bytes).replace('"', "&quot;");
            page.push_str(&format!(
                "<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>{etag}</ETag>\
                 <Size>{bytes}</Size></Contents>"
            ));
        }
        if end < all.len() {
            page.push_str(&format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{end}</NextContinuationToken>"
            ));
        }
        page.push_str("</ListBucketResult>");
        let head =
            format!("HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: {}\r\n\r\n", page.len());
        (head, page.into_bytes())
    }
}
