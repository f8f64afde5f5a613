// How the several selectors of a policy or rule become the one that is evaluated. An endpoint carries its namespace's
// labels under `pcns.` and its service account's under `pcsa.`, so selectors over those get the prefix too.
import { NAMESPACE_LABEL, NAMESPACE_PREFIX, SERVICE_ACCOUNT_LABEL, SERVICE_ACCOUNT_PREFIX } from "../labels.ts";
import {
  ALL_SELECTOR,
  conjunction,
  mapLeaves,
  negate,
  parseSelector,
  prefixLabels,
  type Selector,
  tryParseSelector,
} from "./selector.ts";
import { cancelDoubleNegations, sortedSet } from "./ast.ts";

const IN_A_NAMESPACE: Selector = { kind: "has", label: NAMESPACE_LABEL };
const HAS_SERVICE_ACCOUNT: Selector = { kind: "has", label: SERVICE_ACCOUNT_LABEL };

const inNamespace = (namespace: string): Selector => ({
  kind: "equals",
  label: NAMESPACE_LABEL,
  value: namespace,
});

export interface PolicySelectors {
  readonly selector?: string;
  readonly namespaceSelector?: string;
  readonly serviceAccountSelector?: string;
}

export interface ComposedPolicySelector {
  readonly selector: Selector;
  /** Fields that do not parse and were left out, so that the policy applies to more rather than to nothing. */
  readonly ignored: readonly ("namespaceSelector" | "serviceAccountSelector")[];
}

/**
 * What a policy applies to. Throws `SelectorError` if the policy's own selector does not parse.
 * @param namespace where the policy lives; absent for a global one, and only then `namespaceSelector` counts
 */
export function policySelector(of: PolicySelectors, namespace: string | undefined): ComposedPolicySelector {
  const ignored: ComposedPolicySelector["ignored"][number][] = [];
  const narrowing = (field: (typeof ignored)[number], prefix: string): Selector | undefined => {
    const text = of[field];
    if (text === undefined) return undefined;
    const parsed = tryParseSelector(text);
    if (parsed !== undefined) return prefixed(parsed, prefix);
    ignored.push(field);
    return undefined;
  };
  let current = of.selector === undefined ? undefined : parseSelector(of.selector);
  if (namespace !== undefined) current = join(current, inNamespace(namespace));
  else {
    const namespaces = narrowing("namespaceSelector", NAMESPACE_PREFIX);
    // A global policy for certain namespaces means only what is in a namespace, even where it said all().
    if (namespaces !== undefined) current = replaceAll(join(current, namespaces), IN_A_NAMESPACE);
  }
  const accounts = narrowing("serviceAccountSelector", SERVICE_ACCOUNT_PREFIX);
  if (accounts !== undefined) {
    current = join(current, accounts);
    if (namespace === undefined) current = replaceAll(current, HAS_SERVICE_ACCOUNT);
  }
  return { selector: current ?? ALL_SELECTOR, ignored };
}

export interface EntitySelectors {
  readonly selector?: string;
  readonly notSelector?: string;
  readonly namespaceSelector?: string;
  readonly serviceAccounts?: { readonly names: readonly string[]; readonly selector?: string };
}

/**
 * Whom one side of a rule means; nothing when it is not said by labels. Throws `SelectorError` on a selector that does
 * not parse: what a rule then does depends on its action.
 */
export function entitySelector(of: EntitySelectors, namespace: string | undefined): Selector | undefined {
  const accounts = serviceAccountSelector(of.serviceAccounts);
  const own = of.selector === undefined ? undefined : parseSelector(of.selector);
  const selector = accounts === undefined || own === undefined ? (accounts ?? own) : conjunction([accounts, own]);
  const isLabelled = selector !== undefined || of.notSelector !== undefined || of.namespaceSelector !== undefined;
  const where =
    of.namespaceSelector === undefined
      ? namespace === undefined
        ? undefined
        : inNamespace(namespace)
      : ruleNamespaces(of.namespaceSelector);
  if (where === undefined || !isLabelled) return selector;
  return selector === undefined ? where : conjunction([where, selector]);
}

/** `all()` = any namespace, `global()` = what is in none. */
function ruleNamespaces(text: string): Selector {
  const namespaces = mapLeaves(prefixLabels(parseSelector(text), NAMESPACE_PREFIX), (leaf) => {
    if (leaf.kind === "all") return IN_A_NAMESPACE;
    return leaf.kind === "global" ? negate(IN_A_NAMESPACE) : leaf;
  });
  return cancelDoubleNegations(namespaces);
}

function serviceAccountSelector(accounts: EntitySelectors["serviceAccounts"]): Selector | undefined {
  if (accounts === undefined) return undefined;
  const byName: Selector | undefined =
    accounts.names.length === 0
      ? undefined
      : { kind: "in", label: SERVICE_ACCOUNT_LABEL, values: sortedSet(accounts.names) };
  if (accounts.selector === undefined) return byName;
  const byLabels = prefixed(parseSelector(accounts.selector), SERVICE_ACCOUNT_PREFIX);
  return byName === undefined ? byLabels : conjunction([byLabels, byName]);
}

/** Calico prints and parses a selector when it adds a prefix, which cancels double negations. IP sets are named after it. */
const prefixed = (selector: Selector, prefix: string): Selector =>
  cancelDoubleNegations(prefixLabels(selector, prefix));

const join = (current: Selector | undefined, added: Selector): Selector =>
  current === undefined ? added : conjunction([current, added]);

const replaceAll = (selector: Selector, by: Selector): Selector =>
  mapLeaves(selector, (leaf) => (leaf.kind === "all" ? by : leaf));
