//! Settings that can be replaced while calls are in flight.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::{Settings, SettingsError};

/// The settings in force. A reload replaces them as a whole; what was begun with the old ones ends with them.
pub struct Live {
    path: PathBuf,
    now: watch::Sender<Arc<Settings>>,
    /// What was last wrong with the file, so that it is said once.
    wrong: Mutex<Option<SettingsError>>,
}

impl Live {
    /// Reads them for the first time.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn open(path: &Path) -> Result<Self, SettingsError> {
        let settings = Settings::read(path)?;
        Ok(Self { path: path.into(), now: watch::Sender::new(Arc::new(settings)), wrong: Mutex::new(None) })
    }

    /// Those in force.
    pub fn now(&self) -> Arc<Settings> {
        self.now.borrow().clone()
    }

    /// Tells of every reload.
    pub fn watch(&self) -> watch::Receiver<Arc<Settings>> {
        self.now.subscribe()
    }

    /// Reads the file again. A file that cannot be used changes nothing, and is logged once however often it is read.
    /// Where the gateway listens and its folder stay as they were: they are of the process, and a change of them is logged.
    ///
    /// # Errors
    /// As [`Settings::read`].
    pub fn reload(&self) -> Result<Arc<Settings>, SettingsError> {
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        match Settings::read(&self.path) {
            Ok(mut settings) => {
                let old = self.now();
                if (settings.listen, &settings.data) != (old.listen, &old.data) {
                    tracing::warn!("listen and data take effect with the next start of the process");
                    (settings.listen, settings.data) = (old.listen, old.data.clone());
                }
                let settings = Arc::new(settings);
                self.now.send_replace(settings.clone());
                *wrong = None;
                tracing::info!(models = settings.models.len(), keys = settings.keys.len(), "settings are in force");
                Ok(settings)
            }
            Err(error) => {
                if wrong.as_ref() != Some(&error) {
                    tracing::warn!(%error, remedy = error.remedy, "the old settings stay in force");
                    *wrong = Some(error.clone());
                }
                Err(error)
            }
        }
    }
}
