//! The settings of a client. This is the only file of the client that reads the environment.

use std::{path::PathBuf, str::FromStr, time::Duration};

use spdl_control::{
    client::{
        AllowedTransports, ParseTransportsError,
        group::{GroupMember, GroupMemberError},
    },
    coordinators::Addresses,
};
use spdl_job::is_name;
use spdl_wire::{quic::QuicSettings, slab::MAX_SLOTS};

use crate::{ClientError, StartFrom};

/// The default of [`Settings::slots`].
const DEFAULT_SLOTS: u32 = 4;
/// The default of [`Settings::timeout`], in seconds.
const DEFAULT_TIMEOUT_S: u64 = 300;
/// The default of [`Settings::member_timeout`], in seconds.
const DEFAULT_MEMBER_TIMEOUT_S: u64 = 5;
/// The least value of [`Settings::member_timeout`].
const SHORTEST_MEMBER_TIMEOUT: Duration = Duration::from_millis(100);

/// The settings of a client, read from `SPDL_*` variables or set one by one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `SPDL_COORD`: address of the coordinator, `HOST:PORT`, or of all coordinators, separated by commas. No default.
    pub coordinators: String,
    /// `SPDL_JOB`: the job's name. No default.
    pub job: String,
    /// `SPDL_RUN`: the run's name among the runs of the job, 1 to 128 of `[A-Za-z0-9._-]`. Each run has its own
    /// sessions and positions, and several runs of one job can be active at once. Default: the job's name.
    pub run: Option<String>,
    /// `SPDL_START`: where to start: `beginning` (default), `resume`, an epoch, `EPOCH:OFFSET`, or a state.
    pub start: StartFrom,
    /// `SPDL_EPOCHS`: number of epochs of the run from this launch on. Default: the run's previous number, or else the
    /// job's.
    pub epochs: Option<u64>,
    /// `SPDL_TAKEOVER`: 1 supersedes a live launch of the run. Default 0: a launch is refused while ranks of another
    /// launch are alive. Must be the same on all ranks of a launch.
    pub takeover: bool,
    /// `SPDL_LAUNCH_ID`: an id that all ranks of a launch share, across restarts too, and no other launch has. Default:
    /// `TORCHELASTIC_RUN_ID` unless it is `none`, else `SLURM_JOB_ID` with `SLURM_STEP_ID`, else none: a restart then
    /// waits until the previous ranks have been silent for the liveness timeout.
    pub launch: Option<String>,
    /// `SPDL_CERTS`: folder with `ca.pem`, `cert.pem` and `key.pem` of a client. No default.
    pub certs: PathBuf,
    /// `SPDL_TRANSPORT`: `auto` (default), `local` or `quic`.
    pub transports: AllowedTransports,
    /// `SPDL_SLOTS`: number of batches that can be ready or in use at once. Default 4. A higher value takes more memory
    /// in the home's slab; with only as many slots as the trainer holds batches at once, nothing is prefetched.
    pub slots: u32,
    /// `SPDL_TIMEOUT_S`: how long joining, or waiting for a batch, may take, in seconds. Default 300. A higher value
    /// reports a persistent fault later.
    pub timeout: Duration,
    /// `SPDL_MEMBER`: which member of the group of processes that share the rank this is, and how many there are, such as `0/8`. The
    /// processes of a group are on one node and get one batch, in one slab. Default `0/1`: the rank is this process's alone.
    pub member: GroupMember,
    /// `SPDL_MEMBER_TIMEOUT_S`: how long a member of the group may be silent before it is lost, in seconds. Default 5. A higher value
    /// lets the others wait longer for a member that is suspended.
    pub member_timeout: Duration,
    /// `SPDL_SOCKET`: path of the home's socket in this process's file system, for a pod that mounts the socket's
    /// folder elsewhere. Default: the path that the home announces.
    pub socket: Option<String>,
    /// `SPDL_NODE`: name of this node, for hosts where the kernel's boot id does not show which processes can share
    /// memory. Default: the kernel's boot id.
    pub node: Option<String>,
    /// `SPDL_QUIC`: settings of QUIC, `KEY=VALUE` with commas between; docs/spec/protocol/connections.md has the keys and defaults.
    pub quic: QuicSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            coordinators: String::new(),
            job: String::new(),
            run: None,
            start: StartFrom::Beginning,
            epochs: None,
            takeover: false,
            launch: None,
            certs: PathBuf::new(),
            transports: AllowedTransports::Auto,
            slots: DEFAULT_SLOTS,
            timeout: Duration::from_secs(DEFAULT_TIMEOUT_S),
            member: GroupMember::ALONE,
            member_timeout: Duration::from_secs(DEFAULT_MEMBER_TIMEOUT_S),
            socket: None,
            node: None,
            quic: QuicSettings::default(),
        }
    }
}

impl Settings {
    /// Reads the value of `SPDL_TRANSPORT`.
    ///
    /// # Errors
    /// [`ClientError::Setting`] if it is none of `auto`, `local` and `quic`.
    pub fn parse_transports(text: &str) -> Result<AllowedTransports, ClientError> {
        let error =
            |error: ParseTransportsError| ClientError::Setting { name: "SPDL_TRANSPORT", problem: error.to_string() };
        text.parse().map_err(error)
    }

    /// Reads the value of `SPDL_MEMBER`.
    ///
    /// # Errors
    /// [`ClientError::Setting`] if it is not `MEMBER/MEMBERS`, or there is no such member.
    pub fn parse_member(text: &str) -> Result<GroupMember, ClientError> {
        text.parse().map_err(wrong_member)
    }

    /// Returns the place of a member in a group: its number, and that of members.
    ///
    /// # Errors
    /// [`ClientError::Setting`] if there is no such member.
    pub fn place_in_group((member, members): (u32, u32)) -> Result<GroupMember, ClientError> {
        GroupMember::new(member, members).map_err(wrong_member)
    }

    /// Reads the settings from this process's environment.
    ///
    /// # Errors
    /// Returns [`ClientError::Setting`] for a variable that is invalid. A missing one is an error only when connecting.
    pub fn from_env() -> Result<Self, ClientError> {
        Self::from_variables(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
    }

    fn from_variables(variable: impl Fn(&'static str) -> Option<String>) -> Result<Self, ClientError> {
        let default = Self::default();
        Ok(Self {
            coordinators: variable("SPDL_COORD").unwrap_or_default(),
            job: variable("SPDL_JOB").unwrap_or_default(),
            run: variable("SPDL_RUN"),
            start: variable("SPDL_START").map_or(Ok(default.start), |text| text.parse())?,
            epochs: variable("SPDL_EPOCHS").map(|text| number("SPDL_EPOCHS", Some(text), 0)).transpose()?,
            takeover: variable("SPDL_TAKEOVER").map_or(Ok(false), |text| flag("SPDL_TAKEOVER", &text))?,
            launch: launch_id(&variable),
            certs: variable("SPDL_CERTS").map(PathBuf::from).unwrap_or_default(),
            transports: variable("SPDL_TRANSPORT")
                .map_or(Ok(default.transports), |text| Self::parse_transports(&text))?,
            slots: number("SPDL_SLOTS", variable("SPDL_SLOTS"), default.slots)?,
            timeout: Duration::from_secs(number("SPDL_TIMEOUT_S", variable("SPDL_TIMEOUT_S"), DEFAULT_TIMEOUT_S)?),
            member: variable("SPDL_MEMBER").map_or(Ok(default.member), |text| Self::parse_member(&text))?,
            member_timeout: Duration::from_secs(number(
                "SPDL_MEMBER_TIMEOUT_S",
                variable("SPDL_MEMBER_TIMEOUT_S"),
                DEFAULT_MEMBER_TIMEOUT_S,
            )?),
            socket: variable("SPDL_SOCKET"),
            node: variable("SPDL_NODE"),
            quic: variable("SPDL_QUIC").map_or(Ok(default.quic), |text| {
                text.parse().map_err(|problem| ClientError::Setting { name: "SPDL_QUIC", problem })
            })?,
        })
    }

    /// Parses the coordinators' addresses.
    ///
    /// # Errors
    /// Returns [`ClientError::Setting`] when they are missing or invalid.
    pub fn addresses(&self) -> Result<Addresses, ClientError> {
        let wrong = |error: spdl_control::coordinators::AddressError| ClientError::Setting {
            name: "SPDL_COORD",
            problem: error.to_string(),
        };
        self.coordinators.parse().map_err(wrong)
    }

    /// Checks that all required settings are present and valid.
    ///
    /// # Errors
    /// Returns [`ClientError::Setting`] for the first that is not.
    pub fn check(&self) -> Result<(), ClientError> {
        let wrong = |name, problem: &str| Err(ClientError::Setting { name, problem: problem.to_owned() });
        self.addresses()?;
        if self.job.is_empty() {
            return wrong("SPDL_JOB", "is missing; give the job's name");
        }
        if let Some(run) = self.run.as_ref().filter(|run| !is_name(run)) {
            return wrong("SPDL_RUN", &format!("is `{run}`, not 1 to 128 of A-Z a-z 0-9 . _ -"));
        }
        if self.epochs == Some(0) {
            return wrong("SPDL_EPOCHS", "is 0; give at least 1");
        }
        if self.certs.as_os_str().is_empty() {
            return wrong("SPDL_CERTS", "is missing; give the folder of a client's ca.pem, cert.pem and key.pem");
        }
        if !(1..=MAX_SLOTS).contains(&self.slots) {
            return wrong("SPDL_SLOTS", &format!("is {}, not in 1..={MAX_SLOTS}", self.slots));
        }
        if self.timeout.is_zero() {
            return wrong("SPDL_TIMEOUT_S", "is 0; give at least a second");
        }
        if self.member_timeout < SHORTEST_MEMBER_TIMEOUT {
            let least_ms = SHORTEST_MEMBER_TIMEOUT.as_millis();
            return wrong(
                "SPDL_MEMBER_TIMEOUT_S",
                &format!("is less than the {least_ms} ms that members take to be heard"),
            );
        }
        Ok(())
    }
}

#[allow(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn wrong_member(error: GroupMemberError) -> ClientError {
    ClientError::Setting { name: "SPDL_MEMBER", problem: error.to_string() }
}

fn number<T: FromStr>(name: &'static str, text: Option<String>, default: T) -> Result<T, ClientError> {
    let Some(text) = text else { return Ok(default) };
    text.trim()
        .parse()
        .map_err(|_| ClientError::Setting { name, problem: format!("is `{text}`, not a whole number that fits") })
}

fn flag(name: &'static str, text: &str) -> Result<bool, ClientError> {
    match text.trim() {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        other => Err(ClientError::Setting { name, problem: format!("is `{other}`, not 1 or 0") }),
    }
}

/// Returns the launcher's id of this launch. Ignores `none`, which torchrun without a rendezvous id gives to all
/// launches.
fn launch_id(variable: impl Fn(&'static str) -> Option<String>) -> Option<String> {
    let torchrun = || variable("TORCHELASTIC_RUN_ID").filter(|id| id != "none");
    let slurm = || {
        let job = variable("SLURM_JOB_ID")?;
        Some(variable("SLURM_STEP_ID").map_or(job.clone(), |step| format!("{job}.{step}")))
    };
    variable("SPDL_LAUNCH_ID").or_else(torchrun).or_else(slurm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, ClientError> {
        let find = |name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        let settings = Settings::from_variables(find)?;
        settings.check().map(|()| settings)
    }

    const NEEDED: [(&str, &str); 3] =
        [("SPDL_COORD", "head:7000, [::1]:7001"), ("SPDL_JOB", "train"), ("SPDL_CERTS", "/certs")];

    #[test]
    fn variables_become_settings_and_the_rest_has_its_default() {
        let settings = read(&NEEDED).unwrap();
        assert_eq!(settings.addresses().unwrap().to_string(), "head:7000,[::1]:7001");
        assert_eq!(
            (settings.slots, settings.timeout, settings.transports),
            (4, Duration::from_secs(300), AllowedTransports::Auto)
        );
        assert_eq!((settings.member.to_string(), settings.member.is_shared()), ("0/1".to_owned(), false));
        let settings =
            read(&[&NEEDED[..], &[("SPDL_MEMBER", "3/8"), ("SPDL_MEMBER_TIMEOUT_S", "2")]].concat()).unwrap();
        assert_eq!((settings.member.to_string(), settings.member_timeout), ("3/8".to_owned(), Duration::from_secs(2)));
        let more = [("SPDL_SLOTS", "8"), ("SPDL_TIMEOUT_S", "5"), ("SPDL_TRANSPORT", "quic"), ("SPDL_NODE", "n1")];
        let settings = read(&[&NEEDED[..], &more].concat()).unwrap();
        assert_eq!(
            (settings.slots, settings.timeout, settings.transports),
            (8, Duration::from_secs(5), AllowedTransports::Quic)
        );
        assert_eq!(settings.node.as_deref(), Some("n1"));
    }

    #[test]
    fn a_launch_is_known_by_the_id_that_its_launcher_gives() {
        let torchrun = ("TORCHELASTIC_RUN_ID", "4f1c");
        let slurm = [("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "3")];
        for (variables, id) in [
            (vec![], None),
            (vec![("TORCHELASTIC_RUN_ID", "none")], None),
            (vec![torchrun, slurm[0]], Some("4f1c")),
            (vec![("TORCHELASTIC_RUN_ID", "none"), slurm[0]], Some("77")),
            (slurm.to_vec(), Some("77.3")),
            (vec![("SPDL_LAUNCH_ID", "mine"), torchrun], Some("mine")),
        ] {
            let settings = read(&[&NEEDED[..], &variables].concat()).unwrap();
            assert_eq!(settings.launch.as_deref(), id, "{variables:?}");
        }
        let more = [("SPDL_RUN", "lr-3e-4"), ("SPDL_START", "resume"), ("SPDL_EPOCHS", "5"), ("SPDL_TAKEOVER", "1")];
        let settings = read(&[&NEEDED[..], &more].concat()).unwrap();
        assert_eq!((settings.run.as_deref(), settings.start), (Some("lr-3e-4"), StartFrom::Resume));
        assert_eq!((settings.epochs, settings.takeover), (Some(5), true));
    }

    #[test]
    fn a_setting_that_is_missing_or_makes_no_sense_is_named() {
        for missing in 0..NEEDED.len() {
            let mut variables = NEEDED.to_vec();
            let (name, _) = variables.remove(missing);
            let error = read(&variables).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}` is missing")), "{error}");
        }
        for (name, value) in [
            ("SPDL_COORD", "head"),
            ("SPDL_COORD", ":7000"),
            ("SPDL_COORD", "head:0"),
            ("SPDL_SLOTS", "0"),
            ("SPDL_SLOTS", "5000"),
            ("SPDL_SLOTS", "many"),
            ("SPDL_TIMEOUT_S", "0"),
            ("SPDL_TIMEOUT_S", "-1"),
            ("SPDL_MEMBER", "1"),
            ("SPDL_MEMBER", "2/2"),
            ("SPDL_MEMBER", "0/65"),
            ("SPDL_MEMBER_TIMEOUT_S", "0"),
            ("SPDL_TRANSPORT", "tcp"),
            ("SPDL_RUN", "a b"),
            ("SPDL_START", "end"),
            ("SPDL_EPOCHS", "0"),
            ("SPDL_EPOCHS", "-1"),
            ("SPDL_TAKEOVER", "yes"),
        ] {
            let mut variables = NEEDED.to_vec();
            variables.retain(|(known, _)| *known != name);
            variables.push((name, value));
            let error = read(&variables).unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }
}
