//! The ranks of a launch, over TCP: enough for a small net on a CPU. A larger training uses NCCL.

use std::{
    env,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::Failure;

/// How long a rank waits for another one, which may have a node to itself that still starts.
const PATIENCE: Duration = Duration::from_secs(300);

/// This rank's connections: of rank 0 to all others, of these to rank 0.
pub(crate) struct Ranks {
    rank: u32,
    world: u32,
    links: Vec<TcpStream>,
}

impl Ranks {
    /// Connects the ranks by the variables of torchrun. Without them, this is rank 0 of 1.
    pub(crate) fn from_env() -> Result<Self, Failure> {
        let (rank, world) = (number("RANK")?.unwrap_or(0), number("WORLD_SIZE")?.unwrap_or(1));
        if rank >= world {
            return Err(format!("`RANK` is {rank}, and `WORLD_SIZE` {world}").into());
        }
        if world == 1 {
            return Ok(Self { rank, world, links: Vec::new() });
        }
        let host = env::var("MASTER_ADDR").map_err(|_| "`MASTER_ADDR` is missing: start the ranks with torchrun")?;
        let port: u16 = env::var("MASTER_PORT").map_err(|_| "`MASTER_PORT` is missing")?.parse()?;
        // torchrun itself listens at the port.
        let port = port.checked_add(1).ok_or("`MASTER_PORT` is the last port")?;
        let links = if rank == 0 { accept(&host, port, world)? } else { vec![reach(&host, port, rank)?] };
        for link in &links {
            link.set_nodelay(true)?;
            link.set_read_timeout(Some(PATIENCE))?;
        }
        Ok(Self { rank, world, links })
    }

    pub(crate) const fn rank(&self) -> u32 {
        self.rank
    }

    pub(crate) const fn world(&self) -> u32 {
        self.world
    }

    /// Returns the mean of the numbers of all ranks, the same on each. All ranks call it, with as many numbers.
    pub(crate) fn mean(&mut self, numbers: &[f32]) -> Result<Vec<f32>, Failure> {
        let mut mean = numbers.to_vec();
        if self.rank == 0 {
            // Added up in the order of the ranks, so that each run gives the same sum.
            for link in &mut self.links {
                for (sum, number) in mean.iter_mut().zip(read(link, numbers.len())?) {
                    *sum += number;
                }
            }
            mean.iter_mut().for_each(|sum| *sum /= self.world as f32);
            for link in &mut self.links {
                write(link, &mean)?;
            }
        } else if let Some(link) = self.links.first_mut() {
            write(link, numbers)?;
            mean = read(link, numbers.len())?;
        }
        Ok(mean)
    }
}

/// Waits for all other ranks, and returns their connections in the order of the ranks.
fn accept(host: &str, port: u16, world: u32) -> Result<Vec<TcpStream>, Failure> {
    let listener = TcpListener::bind((host, port))?;
    let mut links = Vec::new();
    for _ in 1..world {
        let (mut link, _) = listener.accept()?;
        let mut rank = [0; 4];
        link.read_exact(&mut rank)?;
        links.push((u32::from_le_bytes(rank), link));
    }
    links.sort_by_key(|(rank, _)| *rank);
    Ok(links.into_iter().map(|(_, link)| link).collect())
}

/// Connects to rank 0, which may still be starting.
fn reach(host: &str, port: u16, rank: u32) -> Result<TcpStream, Failure> {
    let start = Instant::now();
    loop {
        match TcpStream::connect((host, port)) {
            Ok(mut link) => {
                link.write_all(&rank.to_le_bytes())?;
                return Ok(link);
            }
            Err(error) if start.elapsed() > PATIENCE => return Err(format!("rank 0 at {host}:{port}: {error}").into()),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn read(link: &mut TcpStream, count: usize) -> Result<Vec<f32>, Failure> {
    let mut bytes = vec![0; count * 4];
    link.read_exact(&mut bytes)?;
    let (numbers, _) = bytes.as_chunks();
    Ok(numbers.iter().map(|number| f32::from_le_bytes(*number)).collect())
}

fn write(link: &mut TcpStream, numbers: &[f32]) -> Result<(), Failure> {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    Ok(link.write_all(&bytes)?)
}

fn number(name: &str) -> Result<Option<u32>, Failure> {
    let text = env::var(name).ok();
    text.map(|text| text.parse().map_err(|_| format!("`{name}` is `{text}`, not a number").into())).transpose()
}
