//! The device that `cuda` without a number means: the one with this process's number among the ranks on its node.

use crate::DeviceError;

/// The variables that a launcher sets for the processes that it starts.
struct LauncherVariables {
    /// The number of the process among those on its node.
    local_rank: &'static str,
    /// The number of processes on all nodes: the first of these that is set.
    world: &'static [&'static str],
}

const SLURM: &str = "SLURM_LOCALID";

/// An inner launcher comes before the outer launcher that started it: torchrun and mpirun are started by SLURM, never the
/// other way round.
const LAUNCHERS: [LauncherVariables; 6] = [
    LauncherVariables { local_rank: "LOCAL_RANK", world: &["WORLD_SIZE"] },
    LauncherVariables { local_rank: "OMPI_COMM_WORLD_LOCAL_RANK", world: &["OMPI_COMM_WORLD_SIZE"] },
    LauncherVariables { local_rank: "MPI_LOCALRANKID", world: &["PMI_SIZE"] },
    LauncherVariables { local_rank: "PMI_LOCAL_RANK", world: &["PMI_SIZE"] },
    LauncherVariables { local_rank: "MV2_COMM_WORLD_LOCAL_RANK", world: &["MV2_COMM_WORLD_SIZE"] },
    LauncherVariables { local_rank: SLURM, world: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"] },
];

/// The device of this process, and why it is that one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LocalDevice {
    pub(crate) ordinal: u32,
    /// `None` if the driver shows at most one device, which serves any number of ranks.
    reason: Option<ChoiceReason>,
}

/// Why one of several devices was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ChoiceReason {
    devices: u32,
    /// The variable with the local rank; `None` if no launcher set one.
    variable: Option<&'static str>,
    /// The number of processes for which the choice is right, if it is known.
    world: Option<u32>,
}

impl LocalDevice {
    /// Chooses one of `devices` devices by the environment: the only one; else the one whose number is the local rank;
    /// else the first, if this process is the only rank.
    pub(crate) fn choose(devices: u32, variable: impl Fn(&str) -> Option<String>) -> Result<Self, DeviceError> {
        // Each process may see a device of its own alone (`CUDA_VISIBLE_DEVICES`), whatever its local rank is.
        if devices <= 1 {
            return Ok(Self { ordinal: 0, reason: None });
        }
        let number = |name: &'static str| read(name, &variable);
        let is_batch_script = is_batch_script(&variable);
        // The world of the innermost launcher, and its variable.
        let mut ranks = None;
        for LauncherVariables { local_rank, world } in &LAUNCHERS {
            if *local_rank == SLURM && is_batch_script {
                continue;
            }
            let mut of_launcher = None;
            for name in *world {
                of_launcher = of_launcher.or(number(name)?.map(|number| (number, *name)));
            }
            ranks = ranks.or(of_launcher);
            let Some(local_rank_number) = number(local_rank)? else { continue };
            let started = of_launcher.map(|(number, _)| number);
            // A launcher that started fewer processes than there are ranks did not start the ranks.
            if started.zip(ranks).is_some_and(|(started, (ranks, _))| started < ranks) {
                continue;
            }
            if local_rank_number >= devices {
                let problem = format!(
                    "`{local_rank}` is {local_rank_number}, and the driver shows {devices} devices to this process"
                );
                return Err(DeviceError::Ambiguous { problem });
            }
            let reason = ChoiceReason { devices, variable: Some(*local_rank), world: started };
            return Ok(Self { ordinal: local_rank_number, reason: Some(reason) });
        }
        if let Some((ranks @ 2.., name)) = ranks {
            let problem = format!(
                "`{name}` is {ranks}, the driver shows {devices} devices to this process, and no launcher's variable \
                 gives the number of this rank on its node"
            );
            return Err(DeviceError::Ambiguous { problem });
        }
        Ok(Self { ordinal: 0, reason: Some(ChoiceReason { devices, variable: None, world: Some(1) }) })
    }

    /// Returns an error when there are more ranks than the environment showed: then several of them have chosen this
    /// device.
    pub(crate) fn check_world(&self, ranks: u32) -> Result<(), DeviceError> {
        let Some(ChoiceReason { devices, variable, world: Some(world) }) = &self.reason else { return Ok(()) };
        if ranks <= *world {
            return Ok(());
        }
        let of = match variable {
            Some(variable) => format!("`{variable}` is of a launch of {world} processes"),
            None => "no launcher's variable gives the number of this one on its node".to_owned(),
        };
        let problem = format!(
            "the loader is of one of {ranks} ranks, the driver shows {devices} devices to this process, and {of}"
        );
        Err(DeviceError::Ambiguous { problem })
    }
}

/// Returns a variable's number; an empty text counts as not set.
fn read(name: &'static str, variable: impl Fn(&str) -> Option<String>) -> Result<Option<u32>, DeviceError> {
    let value = variable(name).unwrap_or_default();
    let text = value.trim();
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| DeviceError::Variable { name, value: text.to_owned() })
}

/// Returns whether this process belongs to a batch script of SLURM and not to a task of `srun`: there, SLURM's variables
/// describe the script alone.
fn is_batch_script(variable: impl Fn(&str) -> Option<String>) -> bool {
    let is_set = |name: &str| variable(name).is_some_and(|value| !value.trim().is_empty());
    let is_step = ["SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NUM_TASKS"].into_iter().any(is_set);
    let is_first = variable("SLURM_PROCID").is_none_or(|value| matches!(value.trim(), "" | "0"));
    is_set("SLURM_JOB_ID") && !is_step && is_first
}

#[cfg(test)]
mod tests {
    use super::{LAUNCHERS, LocalDevice};
    use crate::DeviceError;

    /// Chooses among four devices with these variables, `NAME=VALUE` with spaces between.
    fn choose(variables: &str) -> Result<LocalDevice, DeviceError> {
        choose_of(4, variables)
    }

    fn choose_of(devices: u32, variables: &str) -> Result<LocalDevice, DeviceError> {
        let find = |name: &str| {
            let mut pairs = variables.split(' ').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
        };
        LocalDevice::choose(devices, find)
    }

    #[track_caller]
    fn problem(chosen: Result<impl std::fmt::Debug, DeviceError>) -> String {
        match chosen.unwrap_err() {
            DeviceError::Ambiguous { problem } => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_launchers_local_rank_is_the_number_of_the_device() {
        for launcher in &LAUNCHERS {
            for world in launcher.world {
                let chosen = choose(&format!("{}=2 {world}=8", launcher.local_rank)).unwrap();
                assert_eq!(chosen.ordinal, 2, "{}", launcher.local_rank);
            }
            assert_eq!(choose(&format!("{}=3", launcher.local_rank)).unwrap().ordinal, 3);
        }
    }

    #[test]
    fn an_inner_launchers_local_rank_comes_before_an_outer_ones() {
        let slurm = "SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_LOCALID=0";
        let mpi = "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1";
        assert_eq!(choose(slurm).unwrap().ordinal, 0);
        assert_eq!(choose(&format!("{slurm} {mpi}")).unwrap().ordinal, 1);
        assert_eq!(choose(&format!("{slurm} {mpi} WORLD_SIZE=16 LOCAL_RANK=3")).unwrap().ordinal, 3);
    }

    #[test]
    fn one_visible_device_serves_every_local_rank() {
        let chosen = choose_of(1, "LOCAL_RANK=5 WORLD_SIZE=8").unwrap();
        assert_eq!(chosen.ordinal, 0);
        chosen.check_world(8).unwrap();
        choose_of(1, "WORLD_SIZE=8").unwrap().check_world(8).unwrap();
    }

    #[test]
    fn a_local_rank_without_a_device_is_refused_with_both_numbers() {
        let problem = problem(choose("SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_LOCALID=4"));
        assert_eq!(problem, "`SLURM_LOCALID` is 4, and the driver shows 4 devices to this process");
    }

    #[test]
    fn several_ranks_without_a_local_rank_are_refused() {
        for world in ["WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"] {
            let problem = problem(choose(&format!("{world}=2")));
            assert!(problem.starts_with(&format!("`{world}` is 2, the driver shows 4 devices")), "{problem}");
        }
        assert_eq!(choose("WORLD_SIZE=1").unwrap().ordinal, 0);
        assert_eq!(choose("").unwrap().ordinal, 0);
    }

    #[test]
    fn the_local_rank_of_a_launcher_that_did_not_start_the_ranks_does_not_count() {
        // One task of `srun` that starts eight ranks itself.
        let problem = problem(choose("SLURM_STEP_ID=0 SLURM_NTASKS=1 SLURM_LOCALID=0 RANK=5 WORLD_SIZE=8"));
        assert!(problem.starts_with("`WORLD_SIZE` is 8,"), "{problem}");
        // Eight tasks of `srun` whose script sets torch's variables.
        let torch = "SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_LOCALID=3 RANK=3 WORLD_SIZE=8";
        assert_eq!(choose(torch).unwrap().ordinal, 3);
    }

    #[test]
    fn a_batch_script_of_slurm_is_no_task_of_it() {
        let script = "SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NTASKS=8";
        assert_eq!(choose(script).unwrap().ordinal, 0);
        choose(script).unwrap().check_world(2).unwrap_err();
        assert_eq!(choose("SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NTASKS=8 SLURM_LOCALID=2").unwrap().ordinal, 2);
        assert_eq!(choose("SLURM_JOB_ID=7 SLURM_PROCID=2 SLURM_NTASKS=8 SLURM_LOCALID=2").unwrap().ordinal, 2);
    }

    #[test]
    fn a_loader_of_more_ranks_than_the_environment_had_is_refused() {
        choose("").unwrap().check_world(1).unwrap();
        let alone = problem(choose("").unwrap().check_world(8));
        assert!(
            alone.contains("one of 8 ranks, the driver shows 4 devices") && alone.contains("no launcher"),
            "{alone}"
        );
        let chosen = choose("SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_LOCALID=1").unwrap();
        chosen.check_world(2).unwrap();
        let problem = problem(chosen.check_world(16));
        assert!(problem.contains("`SLURM_LOCALID` is of a launch of 2 processes"), "{problem}");
    }

    #[test]
    fn a_variable_that_is_no_number_is_named_with_its_text() {
        for text in ["two", "-1", "1.0"] {
            let error = choose(&format!("LOCAL_RANK={text}")).unwrap_err();
            assert_eq!(error, DeviceError::Variable { name: "LOCAL_RANK", value: text.into() });
        }
        assert_eq!(choose("LOCAL_RANK= WORLD_SIZE=").unwrap().ordinal, 0);
    }
}
