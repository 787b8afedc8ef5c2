//! `kernelopt submit`: a bundle goes to the coordinator, and a job with it.

use std::path::Path;

use kernelopt_shared::api::{BudgetSeconds, JobName, JobSpec, MaxCostMicroUsd, Proposers};
use kernelopt_shared::bundle;
use kernelopt_shared::digest::Digest;
use kernelopt_shared::exit::ExitCode;

use super::{client, end, follow, print, wait};
use crate::CommandResult;
use crate::args::remote as args;
use crate::client::Client;
use crate::failure::Failure;

/// Runs the command.
pub fn submit(options: &args::Submit) -> CommandResult {
    let client = client(&options.remote)?;
    let mut spec = spec(options)?;
    wait(async {
        // Whoever is not let in hears so before gigabytes are packed.
        client.jobs(None, 1).await?;
        spec.bundle = store(&client, &options.bundle).await?;
        let job = client.submit(&spec).await?;
        eprintln!("job {} is {}", job.id, job.phase.words());
        if !options.wait {
            eprintln!("follow it: kernelopt job {} --follow", job.id);
            return print(&options.remote, &job, || format!("{}\n", job.id));
        }
        follow::until_over(&client, &job.id).await?;
        end(&client, &job.id, options.out.as_deref(), true, &options.remote).await
    })
}

/// What is asked for, all but the bundle.
fn spec(options: &args::Submit) -> Result<JobSpec, Failure> {
    let usage = |e: String| Failure::new(ExitCode::Usage, e, "kernelopt help submit");
    let seconds = u32::try_from(options.budget.as_secs()).unwrap_or(u32::MAX);
    Ok(JobSpec {
        name: options.name.clone().unwrap_or_else(|| name_of(&options.bundle)),
        bundle: Digest::of([]),
        class: options.class.clone(),
        budget_seconds: BudgetSeconds::new(seconds).map_err(|e| usage(e.to_string()))?,
        max_candidates: options.max_candidates,
        seed: options.seed,
        proposers: Proposers::new(options.proposer.clone()).map_err(usage)?,
        priority: options.priority,
        weight: options.weight,
        model: options.model.clone(),
        max_tokens: options.max_tokens,
        max_cost_microusd: MaxCostMicroUsd::new(options.max_cost.unwrap_or_default().0.div_ceil(1000)).map_err(|e| usage(e.to_string()))?,
    })
}

/// The folder's name, as far as a job can have it.
fn name_of(bundle: &Path) -> JobName {
    let folder = std::path::absolute(bundle).unwrap_or_else(|_| bundle.to_owned());
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let plain: String = name.chars().map(|c| if (' '..='~').contains(&c) { c } else { '_' }).take(JobName::LONGEST).collect();
    JobName::parse(&plain).unwrap_or_default()
}

/// Sends the bundle where the coordinator has not got it.
async fn store(client: &Client, bundle: &Path) -> Result<Digest, Failure> {
    let failure =
        |e| Failure::new(ExitCode::Output, format!("packing the bundle: {e}"), "Free some space for temporary files, or set TMPDIR.");
    let folder = tempfile::tempdir().map_err(failure)?;
    let path = folder.path().join("bundle.tar");
    let bytes = bundle::pack(bundle, &path)?;
    eprintln!("bundle: {}", size(bytes));
    Ok(client.store(&path).await?)
}

fn size(bytes: u64) -> String {
    match bytes as f64 {
        small if small < 1e6 => format!("{:.0} kB", small / 1e3),
        some if some < 1e9 => format!("{:.1} MB", some / 1e6),
        many => format!("{:.1} GB", many / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::{name_of, size};

    #[test]
    fn sizes_are_short() {
        assert_eq!([12_345, 34_500_000, 2_340_000_000].map(size), ["12 kB", "34.5 MB", "2.3 GB"]);
    }

    #[test]
    fn a_job_is_called_as_its_folder() {
        for (folder, name) in [("out/demo-bundle", "demo-bundle"), ("/tmp/mod\u{e8}le\n", "mod_le_"), ("/", "job")] {
            assert_eq!(name_of(folder.as_ref()).as_str(), name);
        }
    }
}
