//! The first step: describes the machine on which all figures are measured.

use std::{fs, process::Command, thread};

use rustix::process::{Resource, getrlimit};

use crate::{
    checks::words,
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// The driver's numbers of the attributes.
const MULTIPROCESSORS: i32 = 16;
const PCI_BUS: i32 = 33;
const PCI_DEVICE: i32 = 34;
const COPY_ENGINES: i32 = 40;
const PCI_DOMAIN: i32 = 50;
const COMPUTE_MAJOR: i32 = 75;
const COMPUTE_MINOR: i32 = 76;

/// Describes the GPU, the driver, the bus and the host.
///
/// # Errors
/// Returns the reason why the device cannot be opened.
pub fn describe(args: &StepArgs) -> StepResult {
    let (device, trainer) = args.open()?;
    let (_, memory_bytes) = device.memory().map_err(words)?.unwrap_or_default();
    let attribute = |number| trainer.attribute(number).unwrap_or(0);
    let compute = format!("{}.{}", attribute(COMPUTE_MAJOR), attribute(COMPUTE_MINOR));
    let address = format!("{:04x}:{:02x}:{:02x}.0", attribute(PCI_DOMAIN), attribute(PCI_BUS), attribute(PCI_DEVICE));
    let of_bus = |file: &str| read(&format!("/sys/bus/pci/devices/{address}/{file}"));
    let link =
        |which: &str| format!("{} x{}", of_bus(&format!("{which}_link_speed")), of_bus(&format!("{which}_link_width")));
    // An idle GPU may lower the speed of its link.
    let (link, fastest_link) = (link("current"), link("max"));
    let cuda = format!("{}.{}", trainer.driver_version / 1000, trainer.driver_version % 1000 / 10);
    let driver = driver_version();
    let cpu = cpu_model();
    let cpus = thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let lockable = getrlimit(Resource::Memlock).current;
    let lockable_words = lockable.map_or_else(|| "no limit".into(), |bytes| format!("{bytes} bytes"));
    let text = format!(
        "{}, {:.1} GiB, compute {compute}, driver {driver}, CUDA {cuda}, link {link} of {fastest_link}, NUMA node {}; {cpus} CPUs ({cpu}), Linux {kernel}, lockable memory: {lockable_words}",
        trainer.name,
        memory_bytes as f64 / f64::from(1 << 30),
        of_bus("numa_node"),
    );
    Ok(StepReport::ok(text)
        .figure("gpu", trainer.name.as_str())
        .figure("gpu_memory_bytes", memory_bytes)
        .figure("compute_capability", compute)
        .figure("multiprocessors", attribute(MULTIPROCESSORS))
        .figure("copy_engines", attribute(COPY_ENGINES))
        .figure("driver", driver)
        .figure("cuda", cuda)
        .figure("pci_address", address.as_str())
        .figure("pcie_link", link)
        .figure("fastest_pcie_link", fastest_link)
        .figure("numa_node", of_bus("numa_node"))
        .figure("nvidia_smi", nvidia_smi())
        .figure("cpu", cpu)
        .figure("cpus", cpus)
        .figure("linux", kernel)
        .figure("lockable_bytes", lockable))
}

/// Returns the file's text, or `unknown`.
fn read(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// Returns the version of the kernel's half of the driver: `550.54.15` of the line
/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 ...`.
fn driver_version() -> String {
    let text = read("/proc/driver/nvidia/version");
    let is_version = |word: &&str| word.contains('.') && word.starts_with(|first: char| first.is_ascii_digit());
    text.lines().next().unwrap_or_default().split_whitespace().find(is_version).unwrap_or("unknown").to_owned()
}

fn cpu_model() -> String {
    let text = read("/proc/cpuinfo");
    let line = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    line.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned())
}

/// Returns what `nvidia-smi` reports about settings that change speed, one line for each GPU, or why it does not.
fn nvidia_smi() -> String {
    const QUERY: &str = "name,persistence_mode,mig.mode.current,ecc.mode.current,compute_mode,pstate,clocks.max.sm,\
                         pcie.link.gen.max,pcie.link.width.max";
    let query = format!("--query-gpu={QUERY}");
    match Command::new("nvidia-smi").args([query.as_str(), "--format=csv,noheader"]).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(error) => format!("`nvidia-smi` does not start: {error}"),
    }
}
