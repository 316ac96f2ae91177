//! `size`: small files home, the rest of large ones spread or on a tier of
//! their own (the size part of TPFS's placement, Mux §2.1).

use super::weighted::Weighted;
use super::{Context, Policy};
use braid_contract::TierId;

pub(super) struct Size {
    /// Files up to this many bytes stay home.
    pub(super) small: u64,
    /// The tier of large files and its name; `None` spreads them.
    pub(super) large: Option<(TierId, String)>,
}

impl Policy for Size {
    fn describe(&self) -> String {
        let large = self.large.as_ref().map_or("spread", |(_, name)| name);
        format!("size, up to {} bytes home, larger: {large}", self.small)
    }

    fn place(&self, context: &Context<'_>) -> Option<TierId> {
        let has_room = |id| context.tiers.iter().any(|tier| tier.id == id && tier.has_room);
        let wanted = if context.size_after <= self.small {
            context.home().map(|home| home.id)
        } else {
            self.large.as_ref().map(|(tier, _)| *tier)
        };
        wanted.filter(|tier| has_room(*tier)).or_else(|| Weighted.place(context))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Deal;
    use super::super::tests::{place, view};
    use super::*;

    #[test]
    fn small_files_home_large_ones_where_told() {
        let mut tiers = [view(0, 1.0), view(1, 100.0), view(2, 1.0)];
        let deal = Deal::new(0, 1);
        let named = Size { small: 100, large: Some((TierId(2), "big".into())) };
        assert_eq!(place(&named, &deal, &tiers, 100), Some(TierId(0)));
        assert_eq!(place(&named, &deal, &tiers, 101), Some(TierId(2)));
        tiers[2].has_room = false;
        assert_eq!(place(&named, &deal, &tiers, 101), Some(TierId(1)));
        let spread = Size { small: 100, large: None };
        assert_eq!(place(&spread, &deal, &tiers, 101), Some(TierId(1)));
    }
}
