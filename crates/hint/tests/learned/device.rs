//! A simulated zoned device that works as the zoned store does.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Zones reserved for moved data.
const RESERVE: usize = 2;

/// A device with an open zone for each stream. When free zones run short, it moves the live data of
/// the full zone that has least.
pub(crate) struct Device {
    /// Pages of a zone.
    zone_pages: usize,
    zones: Vec<Zone>,
    free: VecDeque<usize>,
    open: BTreeMap<u32, usize>,
    /// The places of a file's pages.
    places: HashMap<u64, Vec<(usize, usize)>>,
    written: u64,
    moved: u64,
}

#[derive(Clone, Default)]
struct Zone {
    /// The file of each page; 0 if it is gone.
    pages: Vec<u64>,
    left: usize,
    stream: u32,
}

impl Device {
    /// All zones are free.
    pub(crate) fn new(zones: usize, zone_pages: usize) -> Self {
        Self {
            zone_pages,
            zones: vec![Zone::default(); zones],
            free: (0..zones).collect(),
            open: BTreeMap::new(),
            places: HashMap::new(),
            written: 0,
            moved: 0,
        }
    }

    /// A page of a file is written.
    pub(crate) fn write(&mut self, file: u64, stream: u32) {
        self.written += 1;
        while !self.open.contains_key(&stream) && self.free.len() <= RESERVE {
            self.empty_one();
        }
        self.put(file, stream);
    }

    /// The pages of a file are gone.
    pub(crate) fn end(&mut self, file: u64) {
        for (zone, at) in self.places.remove(&file).unwrap_or_default() {
            self.zones[zone].pages[at] = 0;
            self.zones[zone].left -= 1;
        }
    }

    /// Pages that it wrote for each page of data.
    pub(crate) fn amplification(&self) -> f64 {
        (self.written + self.moved) as f64 / self.written as f64
    }

    fn put(&mut self, file: u64, stream: u32) {
        let number = *self.open.entry(stream).or_insert_with(|| {
            let zone = self.free.pop_front().expect("the device is full");
            self.zones[zone].stream = stream;
            zone
        });
        let zone = &mut self.zones[number];
        self.places.entry(file).or_default().push((number, zone.pages.len()));
        zone.pages.push(file);
        zone.left += 1;
        if zone.pages.len() == self.zone_pages {
            self.open.remove(&stream);
        }
    }

    fn empty_one(&mut self) {
        let is_open = |zone: &usize| self.open.values().any(|open| open == zone);
        let used = (0..self.zones.len()).filter(|zone| !self.zones[*zone].pages.is_empty());
        let full = used.filter(|zone| !is_open(zone) && self.zones[*zone].left < self.zone_pages);
        let Some(zone) = full.min_by_key(|zone| self.zones[*zone].left) else { return self.finish_one() };
        let Zone { pages, stream, .. } = std::mem::take(&mut self.zones[zone]);
        for file in pages.into_iter().filter(|file| *file != 0) {
            self.places.get_mut(&file).expect("it is there").retain(|place| place.0 != zone);
            self.moved += 1;
            self.put(file, stream);
        }
        self.free.push_back(zone);
    }

    /// Closes the open zone with most dead pages.
    fn finish_one(&mut self) {
        let gone = |zone: &usize| self.zones[*zone].pages.len() - self.zones[*zone].left;
        let (stream, zone) = self
            .open
            .iter()
            .max_by_key(|(_, zone)| gone(zone))
            .map(|(stream, zone)| (*stream, *zone))
            .unwrap();
        assert!(gone(&zone) > 0, "the device is full");
        self.open.remove(&stream);
    }
}
