// Combines the selectors of a policy or rule to the one that is evaluated. An endpoint inherits the labels of its
// namespace with the prefix `pcns.` and those of its service account with `pcsa.`, so the labels in selectors for
// namespaces and service accounts get the same prefix.
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
  /** Fields that do not parse. They are ignored, so that the policy applies to more endpoints instead of none. */
  readonly ignored: readonly ("namespaceSelector" | "serviceAccountSelector")[];
}

/**
 * Returns the selector of the endpoints to which a policy applies.
 * @param namespace of the policy; absent for a global policy. `namespaceSelector` is used only in global policies.
 * @throws SelectorError if `selector` does not parse
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
    // A global policy with a namespaceSelector applies only to endpoints in a namespace, even if the selector is all().
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
 * Returns the selector of the endpoints that one side of a rule matches; undefined if the rule has no selectors.
 * @throws SelectorError if a selector does not parse; the effect on the rule depends on its action
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

/** `all()` matches endpoints in any namespace, `global()` endpoints without a namespace. */
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

/** As in Calico, adding a prefix cancels double negations. The result must be equal, because IP sets are named after it. */
const prefixed = (selector: Selector, prefix: string): Selector =>
  cancelDoubleNegations(prefixLabels(selector, prefix));

const join = (current: Selector | undefined, added: Selector): Selector =>
  current === undefined ? added : conjunction([current, added]);

const replaceAll = (selector: Selector, by: Selector): Selector =>
  mapLeaves(selector, (leaf) => (leaf.kind === "all" ? by : leaf));
