//! Wires stores, modules, volume and front ends together.
