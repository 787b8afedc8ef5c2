//! Whom the proposers of a `tune` ask: a gateway, answers on record, or a batch that somebody sends off.

use std::path::Path;
use std::sync::Arc;

use kernelopt_coordinator::job::Terms;
use kernelopt_coordinator::llm::{BATCH, Batch, LLM, LlmProposer, REPLAY, Recorded};
use kernelopt_coordinator::search::proposer::Proposer;
use kernelopt_coordinator::search::proposer_named;
use kernelopt_coordinator::search::replay::Replay;
use kernelopt_llm_gateway::client::Client;
use kernelopt_shared::exit::ExitCode;
use kernelopt_shared::language_model::LanguageModel;
use kernelopt_shared::secret;
use kernelopt_shared::target::Language;
use url::Url;

use crate::args;
use crate::failure::Failure;

/// The key that a gateway is asked with; `_FILE` behind it names a file.
const GATEWAY_TOKEN: &str = "KERNELOPT_GATEWAY_TOKEN";
/// Tokens that a model may take where nothing is said.
const MAX_TOKENS: u64 = 500_000;
/// Folder of batches in the output folder.
const FOLDER: &str = "batch";
/// Ending of a file of recorded answers; any other is a list of candidates.
const ANSWERS: &str = "jsonl";
/// Lines that are left out are named up to this number.
const NAMED: usize = 10;

/// Where candidates come from, and whom they ask.
#[derive(Default)]
pub struct Sources {
    /// In order.
    pub proposers: Vec<Box<dyn Proposer>>,
    /// Whom they ask; none where none of them asks.
    pub model: Option<Arc<dyn LanguageModel>>,
    /// The same, where it writes down what is to be sent off.
    pub batch: Option<Arc<Batch>>,
}

/// True for a proposer that asks a language model.
fn asks(name: &str) -> bool {
    name == LLM || name == BATCH || name.split_once('=').is_some_and(|(kind, file)| kind == REPLAY && is_of_answers(Path::new(file)))
}

fn is_of_answers(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == ANSWERS)
}

/// Tokens that may be taken: what is said; where nothing is, none, or a sensible number for a proposer that asks.
pub fn max_tokens(options: &args::Tune) -> u64 {
    let otherwise = if options.proposer.iter().any(|name| asks(name)) { MAX_TOKENS } else { 0 };
    options.language_model.max_tokens.unwrap_or(otherwise)
}

impl Sources {
    /// As the command line names them; `gateway` is whom `llm` asks, where there is one.
    ///
    /// # Errors
    /// One is unknown, lacks something, or cannot be read; or two of them would ask different models.
    pub fn of(options: &args::Tune, terms: &Terms, language: Language, gateway: Option<Arc<dyn LanguageModel>>) -> Result<Self, Failure> {
        let usage = |what: &str, remedy: &str| Failure::new(ExitCode::Usage, what, remedy);
        if options.proposer.iter().filter(|name| asks(name)).count() > 1 {
            return Err(usage("several proposers ask a language model", "Name one of them: a job asks one model."));
        }
        let mut sources = Self::default();
        for name in &options.proposer {
            let proposer: Box<dyn Proposer> = match name.split_once('=') {
                Some((REPLAY, file)) if is_of_answers(Path::new(file)) => {
                    let recorded = Recorded::read(Path::new(file))?;
                    tell(file, recorded.odd());
                    sources.model = Some(Arc::new(recorded));
                    Box::new(LlmProposer::new(REPLAY, "recorded"))
                }
                Some((REPLAY, file)) => Box::new(Replay::read(Path::new(file), language)?),
                None if name == BATCH => {
                    if terms.model.is_empty() {
                        return Err(usage("the proposer batch has no model to ask for", "Name it with --model, as the provider knows it."));
                    }
                    let batch = Arc::new(Batch::open(&options.out.join(FOLDER))?);
                    tell(FOLDER, batch.odd());
                    sources.model = Some(batch.clone());
                    sources.batch = Some(batch);
                    Box::new(LlmProposer::new(BATCH, &terms.model))
                }
                None if name == LLM => {
                    sources.model = gateway.clone();
                    proposer_named(name, terms, gateway.is_some())?
                }
                _ => proposer_named(name, terms, false)?,
            };
            sources.proposers.push(proposer);
        }
        Ok(sources)
    }
}

/// The gateway at `url`, asked with the key in [`GATEWAY_TOKEN`].
///
/// # Errors
/// There is no key, or the address cannot be used.
pub fn gateway(url: &str) -> Result<Arc<dyn LanguageModel>, Failure> {
    let usage = |what: String, remedy: &str| Failure::new(ExitCode::Usage, what, remedy);
    let key = secret::from_env(GATEWAY_TOKEN).map_err(|e| usage(e.to_string(), "Set one of the two, and let it be readable."))?;
    let key =
        key.ok_or_else(|| usage("the gateway's key is not named".into(), &format!("Set {GATEWAY_TOKEN}, or {GATEWAY_TOKEN}_FILE.")))?;
    let url: Url = url.parse().map_err(|e| usage(format!("the gateway's address: {e}"), "Write http://HOST:PORT."))?;
    let client = Client::new(&url, &key).map_err(|e| usage(e.to_string(), "Look at the address and the key."))?;
    Ok(Arc::new(client))
}

/// Says which lines of a file of answers are left out.
fn tell(file: &str, odd: &[String]) {
    odd.iter().take(NAMED).for_each(|line| eprintln!("note: {file}: {line}"));
    if odd.len() > NAMED {
        eprintln!("note: {file}: {} more lines like these", odd.len() - NAMED);
    }
}
