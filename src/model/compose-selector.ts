// How the several selectors of a policy or rule become the one that is evaluated. An endpoint carries its namespace's
// labels under `pcns.` and its service account's under `pcsa.`, so selectors over those get the prefix too.
import { NAMESPACE_LABEL, NAMESPACE_PREFIX, SERVICE_ACCOUNT_LABEL, SERVICE_ACCOUNT_PREFIX } from "./labels.ts";
import {
  conjunction,
  mapLeaves,
  negate,
  parseSelector,
  prefixLabels,
  printSelector,
  type Selector,
  tryParseSelector,
} from "./selector.ts";
import { sortedSet } from "./selector/ast.ts";

const IN_A_NAMESPACE: Selector = { kind: "has", label: NAMESPACE_LABEL };
const HAS_SERVICE_ACCOUNT: Selector = { kind: "has", label: SERVICE_ACCOUNT_LABEL };

const inNamespace = (namespace: string): Selector => ({
  kind: "equals",
  label: NAMESPACE_LABEL,
  value: namespace,
});

export interface PolicySelectors {
  readonly selector?: string | undefined;
  readonly namespaceSelector?: string | undefined;
  readonly serviceAccountSelector?: string | undefined;
}

/**
 * What a policy applies to. The policy's own selector must parse; of the others one that does not is left out, so that
 * the policy applies to more rather than to nothing.
 * @param namespace where the policy lives; absent for a global one
 */
export function policySelector(of: PolicySelectors, namespace: string | undefined): Selector {
  let current = of.selector === undefined ? undefined : parseSelector(of.selector);
  if (namespace !== undefined) current = join(current, inNamespace(namespace));
  else {
    const namespaces = prefixedSelector(of.namespaceSelector, NAMESPACE_PREFIX);
    // A global policy for certain namespaces means only what is in a namespace, even where it said all().
    if (namespaces !== undefined) current = replaceAll(join(current, namespaces), IN_A_NAMESPACE);
  }
  const accounts = prefixedSelector(of.serviceAccountSelector, SERVICE_ACCOUNT_PREFIX);
  if (accounts !== undefined) {
    current = join(current, accounts);
    if (namespace === undefined) current = replaceAll(current, HAS_SERVICE_ACCOUNT);
  }
  return current ?? { kind: "all" };
}

export interface EntitySelectors {
  readonly selector?: string | undefined;
  readonly notSelector?: string | undefined;
  readonly namespaceSelector?: string | undefined;
  readonly serviceAccounts?: { readonly names: readonly string[]; readonly selector?: string | undefined } | undefined;
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
  return readAgain(namespaces);
}

function serviceAccountSelector(accounts: EntitySelectors["serviceAccounts"]): Selector | undefined {
  if (accounts === undefined) return undefined;
  const byName: Selector | undefined =
    accounts.names.length === 0
      ? undefined
      : { kind: "in", label: SERVICE_ACCOUNT_LABEL, values: sortedSet(accounts.names) };
  if (accounts.selector === undefined) return byName;
  const byLabels = readAgain(prefixLabels(parseSelector(accounts.selector), SERVICE_ACCOUNT_PREFIX));
  return byName === undefined ? byLabels : conjunction([byLabels, byName]);
}

function prefixedSelector(text: string | undefined, prefix: string): Selector | undefined {
  const parsed = text === undefined ? undefined : tryParseSelector(text);
  return parsed === undefined ? undefined : readAgain(prefixLabels(parsed, prefix));
}

/** With a prefix it is printed and read once more before sets are named after it: a double negation cancels out. */
const readAgain = (selector: Selector): Selector => parseSelector(printSelector(selector));

const join = (current: Selector | undefined, added: Selector): Selector =>
  current === undefined ? added : conjunction([current, added]);

const replaceAll = (selector: Selector, by: Selector): Selector =>
  mapLeaves(selector, (leaf) => (leaf.kind === "all" ? by : leaf));
