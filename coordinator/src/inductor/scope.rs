//! What the names of a module stand for, so that a call is recognised by what it calls and not by how it is spelled.

use std::collections::HashMap;

use ruff_python_ast::{Expr, Stmt, StmtImport, StmtImportFrom};

/// What a module-level name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    /// Something imported, or an attribute of it: `torch.ops.aten`.
    Path(String),
    /// The object that compiles kernels.
    Compiler,
    /// A generated kernel.
    Kernel,
    /// A function over an argument list: a partition or subgraph.
    Function,
    /// A tensor that the module holds: `_frozen_param3`, `constant0`.
    Constant,
    /// Plain data, or something that is not understood.
    Other,
}

/// Full name of the class whose instance compiles kernels.
const COMPILER: &str = "torch._inductor.async_compile.AsyncCompile";

/// What `from module import *` binds.
pub(super) const EVERYTHING: &str = "*";

/// The names of a module.
#[derive(Debug, Default)]
pub(super) struct Scope {
    names: HashMap<String, Binding>,
    /// Something may have bound any name to anything.
    unknown: bool,
}

impl Scope {
    /// Binds `name`. A name that stands for two different things stands for nothing known.
    pub(super) fn bind(&mut self, name: &str, binding: Binding) {
        let known = self.names.entry(name.to_owned()).or_insert_with(|| binding.clone());
        if *known != binding {
            *known = Binding::Other;
        }
    }

    /// From here on no name is known.
    pub(super) fn forget_all(&mut self) {
        self.unknown = true;
    }

    pub(super) fn get(&self, name: &str) -> Option<&Binding> {
        if self.unknown { Some(&Binding::Other) } else { self.names.get(name) }
    }

    /// Binds what an import binds. False for one that may bind any name.
    pub(super) fn import(&mut self, statement: &Stmt) -> bool {
        let names = imported(statement);
        let understood = names.iter().all(|(name, _)| name != EVERYTHING);
        for (name, path) in names {
            self.bind(&name, path.map_or(Binding::Other, Binding::Path));
        }
        understood
    }

    /// What `name = value` binds, for a value that is a name, an attribute, or the compiler.
    pub(super) fn alias(&self, value: &Expr) -> Option<Binding> {
        match value {
            Expr::Call(call) if call.arguments.is_empty() && self.path(&call.func).as_deref() == Some(COMPILER) => Some(Binding::Compiler),
            Expr::Attribute(_) => self.path(value).map(Binding::Path),
            _ => None,
        }
    }

    /// Full name of `expr`, a chain of attributes of an imported name.
    pub(super) fn path(&self, expr: &Expr) -> Option<String> {
        dotted(expr, |name| match self.get(name) {
            Some(Binding::Path(path)) => Some(path.clone()),
            _ => None,
        })
    }
}

/// Full name of a chain of attributes, its first name looked up by `root`.
pub(super) fn dotted(expr: &Expr, root: impl Fn(&str) -> Option<String>) -> Option<String> {
    let mut attributes = Vec::new();
    let mut inner = expr;
    while let Expr::Attribute(attribute) = inner {
        attributes.push(attribute.attr.as_str());
        inner = &attribute.value;
    }
    let Expr::Name(name) = inner else { return None };
    let mut path = root(name.id.as_str())?;
    for attribute in attributes.iter().rev() {
        path.push('.');
        path.push_str(attribute);
    }
    Some(path)
}

/// The names that an import binds, each with its full name; none for the full name of a relative import.
pub(super) fn imported(statement: &Stmt) -> Vec<(String, Option<String>)> {
    match statement {
        Stmt::Import(StmtImport { names, .. }) => names
            .iter()
            .map(|alias| match &alias.asname {
                Some(asname) => (asname.to_string(), Some(alias.name.to_string())),
                None => {
                    let first = alias.name.split('.').next().unwrap_or_default().to_owned();
                    (first.clone(), Some(first))
                }
            })
            .collect(),
        Stmt::ImportFrom(StmtImportFrom { module: Some(module), names, level: 0, .. }) => names
            .iter()
            .map(|alias| (alias.asname.as_ref().unwrap_or(&alias.name).to_string(), Some(format!("{module}.{}", alias.name))))
            .collect(),
        Stmt::ImportFrom(StmtImportFrom { names, .. }) => {
            names.iter().map(|alias| (alias.asname.as_ref().unwrap_or(&alias.name).to_string(), None)).collect()
        }
        _ => Vec::new(),
    }
}
