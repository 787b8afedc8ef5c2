//! Answers that are kept: the same question with the same sample number costs once.
//!
//! A key is what makes an answer what it is: the model, every field that generation depends on, which of several samples is asked for, and the
//! scope, so that no key is served what another one paid for. Only whole answers are kept, never errors or cut ones. Of callers who ask for the
//! same at the same time one goes, and the others wait for what it brings; does it leave or fail, the next one goes.

use std::fmt::Write as _;
use std::sync::Arc;

use kernelopt_shared::digest::Digest;
use moka::future::Cache;
use serde_json::{Map, Value};

use crate::names::{KeyName, ModelName};
use crate::settings::{self, Dialect};

/// Fields of a request on which its answer does not depend: how it is delivered, who asks, and why.
const BESIDES: [&str; 7] = ["stream", "stream_options", "user", "metadata", "store", "service_tier", "safety_identifier"];
/// Deepest nesting of a request that is kept; a deeper one goes to the provider each time.
const DEEPEST: usize = 64;
/// What an entry costs beside its answer, in bytes.
const ENTRY_BYTES: usize = 200;

/// What makes an answer what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey(Digest);

impl CacheKey {
    /// Of a request as the caller wrote it, for the `sample`-th answer to it. Two requests that differ in the order of their fields are one; two
    /// dialects are two, since an answer is in that of its request. None: it is nested so deeply that it is not kept.
    pub fn of(scope: &KeyName, model: &ModelName, dialect: Dialect, request: &Map<String, Value>, sample: u32) -> Option<Self> {
        let mut text = format!("{scope}\n{model}\n{dialect:?}\n{sample}\n");
        let mut fields: Vec<_> = request.iter().filter(|(name, _)| !BESIDES.contains(&name.as_str())).collect();
        fields.sort_by_key(|(name, _)| *name);
        for (name, value) in fields {
            let _ = write!(text, "{}:", Value::from(name.as_str()));
            canonical(value, DEEPEST, &mut text)?;
            text.push('\n');
        }
        Some(Self(Digest::of([text.as_bytes()])))
    }
}

/// The value with its fields in order.
fn canonical(value: &Value, depth: usize, text: &mut String) -> Option<()> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in fields {
                let _ = write!(text, "{}:", Value::from(name.as_str()));
                canonical(value, depth, text)?;
                text.push(',');
            }
            text.push('}');
        }
        Value::Array(values) => {
            text.push('[');
            for value in values {
                canonical(value, depth, text)?;
                text.push(',');
            }
            text.push(']');
        }
        plain => write!(text, "{plain}").ok()?,
    }
    Some(())
}

/// What a flight brought.
#[derive(Clone, Debug)]
pub enum Fresh<V> {
    /// A whole answer, to be kept.
    Keep(V),
    /// One that is of use to those who wait for it and to nobody later: cut at the limit of tokens, or by a fault.
    Pass(V),
}

/// Where an answer is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// It was kept.
    Kept,
    /// This caller went for it.
    Fetched,
    /// Another caller went for it at the same time; this one paid nothing.
    Joined,
}

/// Answers, by what they are answers to. Clones are the same cache.
#[derive(Clone)]
pub struct AnswerCache<V> {
    kept: Cache<CacheKey, V>,
}

/// Why a flight brought nothing to be kept.
enum Unkept<V, E> {
    Passed(V),
    Failed(E),
}

impl<V: Clone + Send + Sync + 'static> AnswerCache<V> {
    /// One with these bounds; `bytes` says how large an answer is.
    pub fn new(settings: &settings::Cache, bytes: impl Fn(&V) -> usize + Send + Sync + 'static) -> Self {
        let weigh = move |_: &CacheKey, answer: &V| u32::try_from(bytes(answer).saturating_add(ENTRY_BYTES)).unwrap_or(u32::MAX);
        Self { kept: Cache::builder().max_capacity(settings.most_bytes).time_to_live(settings.keep).weigher(weigh).build() }
    }

    /// The answer that is kept, or what `fetch` brings, or what another caller's brings that is under way. Where that one failed, for reasons that
    /// may be its own, this caller goes itself, once.
    ///
    /// # Errors
    /// What `fetch` failed with, this caller's or another's.
    pub async fn get<E: Send + Sync + 'static, F: Future<Output = Result<Fresh<V>, E>> + Send>(
        &self,
        key: CacheKey,
        fetch: impl Fn() -> F + Sync,
    ) -> (Result<V, Arc<E>>, Source) {
        match self.fly(key, fetch()).await {
            (Err(_), Source::Joined) => self.fly(key, fetch()).await,
            brought => brought,
        }
    }

    async fn fly<E: Send + Sync + 'static>(
        &self,
        key: CacheKey,
        fetch: impl Future<Output = Result<Fresh<V>, E>> + Send,
    ) -> (Result<V, Arc<E>>, Source) {
        if let Some(answer) = self.kept.get(&key).await {
            return (Ok(answer), Source::Kept);
        }
        let mut fetched = false;
        let flight = async {
            fetched = true;
            match fetch.await {
                Ok(Fresh::Keep(answer)) => Ok(answer),
                Ok(Fresh::Pass(answer)) => Err(Unkept::Passed(answer)),
                Err(error) => Err(Unkept::Failed(Arc::new(error))),
            }
        };
        let brought = match self.kept.try_get_with(key, flight).await {
            Ok(answer) => Ok(answer),
            Err(unkept) => match &*unkept {
                Unkept::Passed(answer) => Ok(answer.clone()),
                Unkept::Failed(error) => Err(Arc::clone(error)),
            },
        };
        (brought, if fetched { Source::Fetched } else { Source::Joined })
    }

    /// How many there are, and how large together; a little late.
    pub fn size(&self) -> (u64, u64) {
        (self.kept.entry_count(), self.kept.weighted_size())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use serde_json::json;
    use tokio::time::sleep;

    use super::*;

    fn cache() -> AnswerCache<String> {
        let settings = settings::Cache { most_bytes: 100_000, keep: Duration::from_secs(60) };
        AnswerCache::new(&settings, String::len)
    }

    fn of(scope: &str, model: &str, dialect: Dialect, request: &Value, sample: u32) -> Option<CacheKey> {
        CacheKey::of(&KeyName::parse(scope).unwrap(), &ModelName::parse(model).unwrap(), dialect, request.as_object().unwrap(), sample)
    }

    fn key(request: &Value, sample: u32) -> CacheKey {
        of("lab", "m", Dialect::Openai, request, sample).unwrap()
    }

    #[test]
    fn a_key_is_what_makes_the_answer() {
        let request = json!({"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "seed": 1});
        let same: Value =
            serde_json::from_str(r#"{"seed":1,"stream":true,"user":"u","temperature":0.5,"messages":[{"content":"x","role":"user"}]}"#)
                .unwrap();
        assert_eq!(key(&request, 0), key(&same, 0));
        assert_ne!(key(&request, 0), key(&request, 1), "samples are different answers");
        for (field, value) in [("temperature", json!(0.6)), ("seed", json!("1")), ("tools", json!([])), ("max_tokens", json!(3))] {
            let mut other = request.clone();
            other[field] = value;
            assert_ne!(key(&request, 0), key(&other, 0), "{field}");
        }
        let of_openai = |scope: &str, model: &str| of(scope, model, Dialect::Openai, &request, 0);
        assert_ne!(of_openai("lab", "m"), of_openai("other", "m"), "nobody is served what another key paid for");
        assert_ne!(of_openai("lab", "m"), of_openai("lab", "n"));
        assert_ne!(of_openai("lab", "m"), of("lab", "m", Dialect::Anthropic, &request, 0), "an answer is in the dialect of its request");
        // A text cannot pass for structure.
        assert_ne!(key(&json!({"a": "1,", "b": 2}), 0), key(&json!({"a": 1, "b": 2}), 0));
        let deep = (0..100).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(of("lab", "m", Dialect::Openai, &json!({ "x": deep }), 0), None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_goes_and_all_get_it() {
        let (cache, flights) = (cache(), Arc::new(AtomicU32::new(0)));
        let callers: Vec<_> = (0..20)
            .map(|_| {
                let (cache, flights) = (cache.clone(), flights.clone());
                tokio::spawn(async move {
                    let fetch = || async {
                        flights.fetch_add(1, Ordering::Relaxed);
                        sleep(Duration::from_secs(1)).await;
                        Ok::<_, ()>(Fresh::Keep("answer".to_owned()))
                    };
                    cache.get(key(&json!({}), 0), fetch).await
                })
            })
            .collect();
        let mut fetched = 0;
        for caller in callers {
            let (answer, source) = caller.await.unwrap();
            assert_eq!(answer.unwrap(), "answer");
            fetched += u32::from(source == Source::Fetched);
        }
        assert_eq!((fetched, flights.load(Ordering::Relaxed)), (1, 1));
        let (_, source) = cache.get(key(&json!({}), 0), || async { Err::<Fresh<String>, _>("not asked") }).await;
        assert_eq!(source, Source::Kept);
    }

    #[tokio::test(start_paused = true)]
    async fn errors_and_cut_answers_are_not_kept() {
        let cache = cache();
        let (failed, _) = cache.get(key(&json!({}), 0), || async { Err::<Fresh<String>, _>("overloaded") }).await;
        assert_eq!(*failed.unwrap_err(), "overloaded");
        let (cut, _) = cache.get(key(&json!({}), 0), || async { Ok::<_, ()>(Fresh::Pass("half".to_owned())) }).await;
        assert_eq!(cut.unwrap(), "half");
        let (whole, source) = cache.get(key(&json!({}), 0), || async { Ok::<_, ()>(Fresh::Keep("whole".to_owned())) }).await;
        assert_eq!((whole.unwrap().as_str(), source), ("whole", Source::Fetched));
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_failed_with_is_tried_once() {
        let cache = cache();
        let first = tokio::spawn({
            let cache = cache.clone();
            let fetch = || async {
                sleep(Duration::from_secs(1)).await;
                Err::<Fresh<String>, _>("its deadline is over")
            };
            async move { cache.get(key(&json!({}), 0), fetch).await }
        });
        sleep(Duration::from_millis(1)).await;
        let (mine, source) = cache.get(key(&json!({}), 0), || async { Ok::<_, &str>(Fresh::Keep("mine".to_owned())) }).await;
        assert_eq!((mine.unwrap().as_str(), source), ("mine", Source::Fetched));
        assert!(first.await.unwrap().0.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_one_who_went_leaves_the_next_one_goes() {
        let cache = cache();
        let first = tokio::spawn({
            let cache = cache.clone();
            async move { cache.get(key(&json!({}), 0), std::future::pending::<Result<Fresh<String>, ()>>).await }
        });
        sleep(Duration::from_millis(1)).await;
        let second =
            tokio::spawn(async move { cache.get(key(&json!({}), 0), || async { Ok::<_, ()>(Fresh::Keep("mine".to_owned())) }).await });
        sleep(Duration::from_millis(1)).await;
        assert!(!second.is_finished());
        first.abort();
        let (answer, source) = second.await.unwrap();
        assert_eq!((answer.unwrap().as_str(), source), ("mine", Source::Fetched));
    }

    #[tokio::test]
    async fn bytes_are_bounded() {
        let cache = cache();
        for at in 0..1_000 {
            let _ = cache.get(key(&json!({ "at": at }), 0), || async { Ok::<_, ()>(Fresh::Keep("x".repeat(1_000))) }).await;
        }
        cache.kept.run_pending_tasks().await;
        let (entries, bytes) = cache.size();
        assert!(entries > 50 && bytes <= 100_000, "{entries} of {bytes} bytes");
        let (_, source) = cache.get(key(&json!({ "at": "large" }), 0), || async { Ok::<_, ()>(Fresh::Keep("x".repeat(1_000_000))) }).await;
        assert_eq!(source, Source::Fetched);
        cache.kept.run_pending_tasks().await;
        assert!(cache.size().1 <= 100_000);
    }
}
