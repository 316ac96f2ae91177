//! The cache in memory of a volume's tiers: its settings, its memory, and the changes by a stack
//! file that is read anew. `stores/cache` does the work.

mod allowance;
mod pressure;

use crate::refusal::{Located, Place, Refusal};
use crate::section::{Field, Section};
use allowance::allowance;
use braid_contract::units::{self, parse_size, write_size};
use braid_contract::{Figure, ModuleStatus, Store};
use braid_stores::cache::{CacheFigures, CacheMemory, CacheShare, CacheStore, RANGE_DEFAULT};
use pressure::Watch;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The share of the memory that may be used, unless the settings name another, in percent.
const PERCENT_DEFAULT: f64 = 25.0;
/// Bytes of a range.
const RANGE_BOUNDS: [u64; 2] = [4 << 10, 1 << 20];

/// The memory of the cache.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Memory {
    Bytes(u64),
    /// Of the memory that the daemon may use.
    Percent(f64),
}

/// `cache: { … }` of a volume.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    memory: Memory,
    /// Bytes of a range.
    pub(crate) range: Option<Located<u64>>,
    /// The tiers with settings of their own.
    pub(crate) tiers: Vec<(Located<String>, CacheShare)>,
}

/// Reads the settings.
pub(crate) fn from_file(field: &Field) -> Result<CacheSettings, Refusal> {
    let mut section = Section::of(field, &["memory", "range", "tiers"])?;
    let memory = section.take("memory").map(|field| memory(&field)).transpose()?;
    let range = section.take("range").map(|field| range(&field)).transpose()?;
    let mut tiers = Vec::new();
    if let Some(field) = section.take("tiers") {
        for tier in Section::open(&field)?.into_fields() {
            let share = share(&tier)?;
            tiers.push((Located::new(tier.name.clone(), tier.place.clone()), share));
        }
    }
    let parts = tiers.iter().map(|(_, share)| match share {
        CacheShare::Part(part) => *part,
        _ => 0.0,
    });
    if parts.sum::<f64>() > 1.0 {
        let advice = "write less; what is left goes to the tiers that have no share of their own";
        return Err(section.place().refuse("the shares of the tiers are more than 100% together", advice));
    }
    Ok(CacheSettings { memory: memory.unwrap_or(Memory::Percent(PERCENT_DEFAULT)), range, tiers })
}

fn memory(field: &Field) -> Result<Memory, Refusal> {
    let parsed = field.parse("a percentage or a size", |text| {
        if text.ends_with('%') {
            let percent = units::parse_percent(text)?;
            return match percent > 0.0 && percent <= 90.0 {
                true => Ok(Memory::Percent(percent)),
                false => Err("write up to 90%: the daemon needs memory for other things too".into()),
            };
        }
        let bytes = parse_size(text);
        bytes
            .map(Memory::Bytes)
            .map_err(|advice| format!("write a percentage such as 25%, or a size: {advice}"))
    });
    Ok(parsed?.value)
}

fn range(field: &Field) -> Result<Located<u64>, Refusal> {
    let [least, most] = RANGE_BOUNDS;
    let size = field.size()?;
    if size.value.is_power_of_two() && (least..=most).contains(&size.value) {
        return Ok(size);
    }
    let found = format!(
        "a range of {} is no power of two from {} to {}",
        write_size(size.value),
        write_size(least),
        write_size(most)
    );
    Err(size.place.refuse(found, "write 64KiB, or less where small pieces are read by chance"))
}

fn share(field: &Field) -> Result<CacheShare, Refusal> {
    let parsed = field.parse("auto, off or a percentage", |text| match text {
        "auto" => Ok(CacheShare::Auto),
        "off" | "no" | "false" => Ok(CacheShare::Off),
        text => {
            let percent = units::parse_percent(text)
                .map_err(|_| "write auto, off, or a share such as 60%".to_owned())?;
            match percent > 0.0 && percent <= 100.0 {
                true => Ok(CacheShare::Part(percent / 100.0)),
                false => Err("write more than 0% and at most 100%, or off".into()),
            }
        }
    });
    Ok(parsed?.value)
}

impl CacheSettings {
    pub(crate) fn range_bytes(settings: Option<&Self>) -> u64 {
        settings.and_then(|cache| cache.range.as_ref()).map_or(RANGE_DEFAULT, |range| range.value)
    }

    /// Whether the two have the same effect.
    fn is_as(&self, other: &Self) -> bool {
        let shares = |settings: &Self| -> BTreeMap<String, String> {
            let tiers = settings.tiers.iter();
            tiers.map(|(name, share)| (name.value.clone(), format!("{share:?}"))).collect()
        };
        self.memory == other.memory && shares(self) == shares(other)
    }

    /// The bytes that the cache may have now.
    fn bytes(&self) -> u64 {
        match self.memory {
            Memory::Bytes(bytes) => bytes,
            Memory::Percent(percent) => (allowance() as f64 * percent / 100.0) as u64,
        }
    }
}

/// The change for people; `None` if there is none.
pub(crate) fn change(old: Option<&CacheSettings>, new: Option<&CacheSettings>) -> Option<String> {
    match (old, new) {
        (None, Some(_)) => Some("cache: on".to_owned()),
        (Some(_), None) => Some("cache: off".to_owned()),
        (Some(old), Some(new)) if !old.is_as(new) => Some("cache: other settings".to_owned()),
        _ => None,
    }
}

/// Refuses ranges that a mounted volume can't come to.
pub(crate) fn refuse_range(now: u64, new: Option<&CacheSettings>, whole: &Place) -> Result<(), Refusal> {
    let wanted = CacheSettings::range_bytes(new);
    if new.is_none() || wanted == now {
        return Ok(());
    }
    let place = new.and_then(|cache| cache.range.as_ref()).map_or(whole, |range| &range.place);
    let found = format!("the cache has ranges of {}", write_size(now));
    Err(place.refuse(found, format!("write range: {}, or unmount and mount again", write_size(now))))
}

/// The cache of a mounted volume. Without settings, it has no memory, and all passes by.
pub(crate) struct Cache {
    memory: Arc<CacheMemory>,
    watch: Mutex<Option<Watch>>,
}

impl Cache {
    pub(crate) fn new(settings: Option<&CacheSettings>) -> Self {
        let memory = CacheMemory::new(CacheSettings::range_bytes(settings));
        let cache = Self { memory, watch: Mutex::default() };
        cache.set(settings);
        cache
    }

    /// Bytes of a range.
    pub(crate) fn range(&self) -> u64 {
        self.memory.range()
    }

    /// Brings settings into force.
    pub(crate) fn set(&self, settings: Option<&CacheSettings>) {
        let mut watch = self.watch.lock().unwrap_or_else(PoisonError::into_inner);
        // It must not restore the earlier settings.
        *watch = None;
        let Some(settings) = settings else { return self.memory.set_budget(0) };
        let shares = settings.tiers.iter().map(|(name, share)| (name.value.clone(), *share));
        self.memory.set_shares(shares.collect());
        let bytes = settings.bytes();
        self.memory.set_budget(bytes);
        *watch = Watch::begin(&self.memory, bytes);
    }

    /// Puts it on the store of a tier.
    pub(crate) fn put_on(&self, tier: &str, store: Arc<dyn Store>) -> Arc<dyn Store> {
        Arc::new(CacheStore::new(&self.memory, tier, store))
    }

    /// Its figures, as those of a module below all others; `None` without memory.
    pub(crate) fn status(&self, place: u32) -> Option<ModuleStatus> {
        let budget = self.memory.budget();
        if budget == 0 {
            return None;
        }
        let mut figures = vec![Figure::gauge("cache_budget_bytes", "Memory that all tiers may use", budget)];
        for (tier, of_tier) in self.memory.figures() {
            figures.extend(figures_of(&of_tier).map(|figure| figure.with("tier", tier.clone())));
        }
        Some(ModuleStatus::new("cache", place, figures))
    }
}

fn figures_of(of: &CacheFigures) -> [Figure; 7] {
    [
        Figure::counter("cache_hits", "Ranges that were in memory when they were read", of.hits),
        Figure::counter("cache_misses", "Ranges that had to be read from the tier", of.misses),
        Figure::counter("cache_passed", "Reads that passed the cache by", of.passed),
        Figure::counter("cache_evictions", "Ranges that gave way to others", of.evictions),
        Figure::gauge("cache_bytes", "Memory in use for ranges of the tier", of.bytes),
        Figure::gauge("cache_limit_bytes", "Memory that the tier may use now", of.limit),
        Figure::gauge("cache_passes", "1 while reads of the tier pass the cache by", u64::from(of.passes)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yaml;

    fn read(text: &str) -> Result<CacheSettings, String> {
        let file = Place::file("s.yaml");
        let field = Field::root(yaml::parse(text, &file).unwrap(), &file);
        from_file(&field).map_err(|refusal| refusal.to_string())
    }

    #[test]
    fn settings_are_read_and_compared() {
        let given = read("memory: 64MiB\nrange: 16KiB\ntiers: { a: auto, b: 'off', c: 60% }").unwrap();
        assert_eq!((given.bytes(), CacheSettings::range_bytes(Some(&given))), (64 << 20, 16 << 10));
        let shares: Vec<CacheShare> = given.tiers.iter().map(|(_, share)| *share).collect();
        assert_eq!(shares, [CacheShare::Auto, CacheShare::Off, CacheShare::Part(0.6)]);
        let usual = read("{ }").unwrap();
        assert!(usual.bytes() > 0 && usual.memory == Memory::Percent(25.0));
        assert_eq!(change(Some(&usual), Some(&given)).as_deref(), Some("cache: other settings"));
        assert_eq!(change(Some(&given), Some(&given)), None);
        assert_eq!(change(None, Some(&given)).as_deref(), Some("cache: on"));
        let whole = Place::file("s.yaml");
        assert!(
            refuse_range(16 << 10, Some(&given), &whole).is_ok() && refuse_range(1, None, &whole).is_ok()
        );
        let refused = refuse_range(64 << 10, Some(&given), &whole).unwrap_err().to_string();
        assert!(refused.starts_with("s.yaml:2: range: the cache has ranges of 64KiB"), "{refused}");
    }

    #[test]
    fn what_is_no_setting_is_refused_with_its_line() {
        for (text, says) in [
            ("memory: lots", "s.yaml:1: memory: found 'lots', expected a percentage or a size"),
            ("memory: 95%", "s.yaml:1: memory: found '95%'"),
            ("range: 3KiB", "s.yaml:1: range: a range of 3KiB is no power of two from 4KiB to 1MiB"),
            ("tiers:\n  a: some", "s.yaml:2: tiers.a: found 'some', expected auto, off or a percentage"),
            ("tiers: { a: 60%, b: 50% }", "s.yaml:1: the shares of the tiers are more than 100% together"),
            ("writes: back", "s.yaml:1: writes: unknown key"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.starts_with(says), "{refused}");
        }
    }
}
