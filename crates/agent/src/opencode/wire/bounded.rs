//! What is read without being kept, or not beyond a number.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A list that is refused where it is longer.
#[derive(Debug)]
pub(in crate::opencode) struct AtMost<T, const MOST: usize>(pub(in crate::opencode) Vec<T>);

impl<T, const MOST: usize> Default for AtMost<T, MOST> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for AtMost<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List<T, const MOST: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for List<T, MOST> {
            type Value = AtMost<T, MOST>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of no more than {MOST}")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(one) = list.next_element()? {
                    if all.len() == MOST {
                        return Err(serde::de::Error::invalid_length(MOST + 1, &self));
                    }
                    all.push(one);
                }
                Ok(AtMost(all))
            }
        }
        deserializer.deserialize_seq(List(PhantomData))
    }
}

/// Whatever stands there.
#[derive(Debug)]
pub(in crate::opencode) struct Anything;

impl<'de> Deserialize<'de> for Anything {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// Nothing is kept of it but whether it is `true`.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Summary(pub(super) bool);

impl<'de> Deserialize<'de> for Summary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IsTrue;
        impl<'de> Visitor<'de> for IsTrue {
            type Value = bool;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("anything")
            }

            fn visit_bool<E>(self, value: bool) -> Result<bool, E> {
                Ok(value)
            }

            fn visit_unit<E>(self) -> Result<bool, E> {
                Ok(false)
            }

            fn visit_i64<E>(self, _: i64) -> Result<bool, E> {
                Ok(false)
            }

            fn visit_u64<E>(self, _: u64) -> Result<bool, E> {
                Ok(false)
            }

            fn visit_f64<E>(self, _: f64) -> Result<bool, E> {
                Ok(false)
            }

            fn visit_str<E>(self, _: &str) -> Result<bool, E> {
                Ok(false)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<bool, A::Error> {
                IgnoredAny.visit_seq(list).map(|_| false)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<bool, A::Error> {
                IgnoredAny.visit_map(map).map(|_| false)
            }
        }
        deserializer.deserialize_any(IsTrue).map(Self)
    }
}
