//! The names of a job's classes, which the coordinator has from the manifest of the job's dataset.

use std::{sync::Arc, time::Duration};

use spdl_control::{
    coordinators::LeaderDiscovery,
    messages::{FromCoordinator, ToCoordinator},
};
use spdl_wire::{coordinators::CoordinatorClient, quic::CONNECT_TIMEOUT};

use super::{Builder, endpoints};
use crate::{ClientError, blocking::block_on};

/// How long the answer for a part of the names may take: the coordinator reads the manifest for it.
const CLASSES_TIMEOUT: Duration = Duration::from_secs(35);

impl Builder {
    /// Asks the coordinator for the names of the job's classes, in the order of their numbers; `None` if neither the job nor its
    /// dataset lists any. Joins no session.
    ///
    /// # Errors
    /// [`ClientError`] when a setting is invalid, no coordinator answers, or the coordinator cannot read the dataset's manifest.
    pub async fn classes(&self) -> Result<Option<Arc<[String]>>, ClientError> {
        self.settings.check()?;
        let addresses = self.settings.addresses()?;
        let endpoint = endpoints(&self.settings)?[0].clone();
        let mut coordinator = CoordinatorClient::new(endpoint, LeaderDiscovery::new(addresses), CONNECT_TIMEOUT);
        let unknown = |cause: String| ClientError::ClassesUnknown { cause };
        let mut classes: Vec<String> = Vec::new();
        loop {
            let first = u32::try_from(classes.len()).map_err(|_| unknown("they are too many".to_owned()))?;
            let request = ToCoordinator::Classes { job: self.settings.job.clone(), first };
            match coordinator.ask(&request, CLASSES_TIMEOUT).await {
                Ok(FromCoordinator::Classes { names, is_last }) => {
                    let is_over = is_last || names.is_empty();
                    classes.extend(names);
                    if is_over {
                        break;
                    }
                }
                Ok(FromCoordinator::Refused(refusal)) => return Err(refusal.into()),
                Ok(other) => return Err(unknown(format!("the coordinator answered {other:?}"))),
                Err(error) => return Err(unknown(error.to_string())),
            }
        }
        coordinator.finish("the client has the classes").await;
        Ok((!classes.is_empty()).then(|| classes.into()))
    }

    /// Asks for the classes as [`Builder::classes`] does, for a thread without an async runtime.
    ///
    /// # Errors
    /// As [`Builder::classes`]; [`ClientError::InsideRuntime`] when called inside an async runtime.
    pub fn classes_blocking(&self) -> Result<Option<Arc<[String]>>, ClientError> {
        block_on(self.classes())?
    }
}
