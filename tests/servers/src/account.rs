//! Who a server runs as.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use nix::unistd::{Gid, Uid, User, chown, geteuid};

use crate::ServerError;

/// The package's own account where we are root, since RabbitMQ refuses root; ourselves otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Account(Option<(Uid, Gid)>);

impl Account {
    /// The account `name`, which `package` makes when it is installed.
    pub fn of(name: &str, program: &'static str, package: &'static str) -> Result<Self, ServerError> {
        if !geteuid().is_root() {
            return Ok(Self(None));
        }
        let user = User::from_name(name).map_err(|e| ServerError::Io { what: format!("the account {name}"), source: e.into() })?;
        user.map(|user| Self(Some((user.uid, user.gid)))).ok_or(ServerError::Missing { program, package })
    }

    /// Makes `command` run as it. The standard library drops root's further groups with it.
    pub fn enter(self, command: &mut Command) {
        if let Some((user, group)) = self.0 {
            command.uid(user.as_raw()).gid(group.as_raw());
        }
    }

    /// Gives it a file or folder.
    pub fn own(self, path: &Path) -> Result<(), ServerError> {
        let Some((user, group)) = self.0 else { return Ok(()) };
        chown(path, Some(user), Some(group)).map_err(|e| ServerError::Io { what: path.display().to_string(), source: e.into() })
    }
}
