//! Decides for each step which process runs it, or why it cannot run here.

use std::{
    env,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    runner::PlannedStep,
    steps::{GpuStep, STEPS, StepArgs, StepKind},
};

/// The environment variable with the process id of the runner of a step.
pub const RUNNER_VARIABLE: &str = "SPDL_GPU_TESTS_RUNNER";

/// The programs and files with which the steps' processes are started.
#[derive(Debug)]
pub struct StepPrograms {
    /// This program.
    pub program: PathBuf,
    /// `torch_check.py`, unless the Python steps are left out.
    pub python_steps: Option<PathBuf>,
    /// The Python interpreter.
    pub python: PathBuf,
    /// A folder for the driver's cache and for what steps share. It is empty at first.
    pub scratch: PathBuf,
}

impl StepPrograms {
    /// Returns the processes of the steps with these names, or of all if there are no names.
    #[must_use]
    pub fn plan(&self, args: &StepArgs, names: &[String]) -> Vec<PlannedStep> {
        let steps: Vec<&GpuStep> =
            STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name)).collect();
        let plan = |step: &&GpuStep| PlannedStep {
            name: step.name.into(),
            weight: step.weight,
            command: match step.kind {
                StepKind::Native(_) => Ok(self.native(Command::new(&self.program), step.name, args)),
                StepKind::Python => self.python(step.name, args),
                StepKind::Sanitizer(over) => self.sanitizer(over, args),
            },
        };
        steps.iter().map(plan).collect()
    }

    fn native(&self, mut command: Command, name: &str, args: &StepArgs) -> Command {
        command.args(["step", name]).args(args.to_options());
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
        command.env("CUDA_CACHE_PATH", self.scratch.join("ptx-cache"));
        command.env(RUNNER_VARIABLE, std::process::id().to_string());
    }

    fn python(&self, name: &str, args: &StepArgs) -> Result<Command, String> {
        let file = self.python_steps.as_ref().ok_or("no `--python-steps` names the file of these steps")?;
        let python = find_program(&self.python, Path::new("/usr/bin"))
            .ok_or_else(|| format!("there is no Python interpreter `{}`", self.python.display()))?;
        let mut command = Command::new(python);
        command.arg(file).args([name, "--device", &args.device, "--scratch"]).arg(&self.scratch);
        self.set_environment(&mut command);
        Ok(command)
    }

    /// Returns a step under compute-sanitizer, with small batches: it makes a kernel many times slower.
    fn sanitizer(&self, over: &str, args: &StepArgs) -> Result<Command, String> {
        let sanitizer = find_program(Path::new("compute-sanitizer"), Path::new("/usr/local/cuda/bin")).ok_or(
            "`compute-sanitizer` is neither in PATH nor in /usr/local/cuda/bin; it comes with the CUDA toolkit",
        )?;
        let mut command = Command::new(sanitizer);
        // Calls that the driver refuses are the loader's own to handle: only faults of memory count here.
        command.args(["--tool", "memcheck", "--error-exitcode", "9", "--report-api-errors", "no"]).arg(&self.program);
        Ok(self.native(command, over, &StepArgs { quick: true, ..args.clone() }))
    }
}

/// Returns the path of a program that is in `PATH` or in this folder, if its name is no path itself.
fn find_program(name: &Path, folder: &Path) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(name.to_owned()).filter(|path| path.is_file());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain([folder.to_owned()]);
    folders.find_map(|folder| Some(folder.join(name)).filter(|path| path.is_file()))
}
