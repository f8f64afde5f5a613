// Parses selectors with an explicit stack instead of recursion, because users decide how deeply they are nested. Grammar:
//   or := and ('||' and)*      and := op ('&&' op)*
//   op := '!'* ( has(L) | all() | global() | '(' or ')' | L operator STRING | L ('in'|'not in') '{' STRING, … '}' )
import { ALL_SELECTOR, conjunction, disjunction, GLOBAL_SELECTOR, negate, type Selector, sortedSet } from "./ast.ts";
import { SelectorLexer, type Token } from "./lex.ts";

/** One open parenthesis, or the whole text. */
interface Group {
  readonly negated: boolean;
  readonly at: number;
  readonly alternatives: Selector[];
  conjuncts: Selector[];
}

/**
 * Parses a selector. Blank text selects everything.
 * @throws SelectorError with the position and the expected token
 */
export function parseSelector(text: string): Selector {
  const lexer: SelectorLexer = new SelectorLexer(text);
  const groups: Group[] = [];
  let group = newGroup(false, 0);
  let token = lexer.next();
  if (token.kind === "end") return ALL_SELECTOR;
  for (;;) {
    let negated = false;
    for (; token.kind === "!"; token = lexer.next()) negated = !negated;
    if (token.kind === "(") {
      groups.push(group);
      group = newGroup(negated, token.at);
      token = lexer.next();
      continue;
    }
    const term = parseTerm(lexer, token);
    group.conjuncts.push(negated ? negate(term) : term);
    token = lexer.next();
    while (token.kind === ")") {
      const parent = groups.pop();
      if (parent === undefined) lexer.fail(token.at, "unexpected ) at end of selector");
      const closed = closeGroup(group);
      parent.conjuncts.push(group.negated ? negate(closed) : closed);
      group = parent;
      token = lexer.next();
    }
    if (token.kind === "||") {
      group.alternatives.push(conjunction(group.conjuncts));
      group.conjuncts = [];
    } else if (token.kind === "end") {
      if (groups.length === 0) return closeGroup(group);
      lexer.fail(token.at, `expected ) for the ( at character ${group.at + 1}`);
    } else if (token.kind !== "&&") {
      lexer.fail(token.at, groups.length > 0 ? "expected )" : "unexpected content at end of selector");
    }
    token = lexer.next();
  }
}

/** Returns undefined if the text does not parse. */
export function tryParseSelector(text: string): Selector | undefined {
  try {
    return parseSelector(text);
  } catch {
    return undefined;
  }
}

const newGroup = (negated: boolean, at: number): Group => ({ negated, at, alternatives: [], conjuncts: [] });

function closeGroup(group: Group): Selector {
  group.alternatives.push(conjunction(group.conjuncts));
  return disjunction(group.alternatives);
}

function parseTerm(lexer: SelectorLexer, token: Token): Selector {
  switch (token.kind) {
    case "all":
      return ALL_SELECTOR;
    case "global":
      return GLOBAL_SELECTOR;
    case "has":
      return { kind: "has", label: token.text };
    case "label":
      return parseComparison(lexer, token.text);
    case "end":
      lexer.fail(token.at, "expected a term such as has(label), label == 'value' or all()");
      break;
    case "string":
      lexer.fail(token.at, "expected identifier, got a string: the label comes first, without quotes");
      break;
    default:
      lexer.fail(token.at, `expected a term, got ${token.kind}`);
  }
}

function parseComparison(lexer: SelectorLexer, label: string): Selector {
  const token = lexer.next();
  if (token.kind !== "operator") lexer.fail(token.at, `expected operator after label ${label}`);
  switch (token.operator) {
    case "in":
      return { kind: "in", label, values: parseSet(lexer) };
    case "not in":
      return { kind: "notIn", label, values: parseSet(lexer) };
    case "==":
      return { kind: "equals", label, value: parseString(lexer) };
    case "!=":
      return { kind: "notEquals", label, value: parseString(lexer) };
    case "contains":
      return { kind: "contains", label, value: parseString(lexer) };
    case "starts with":
      return { kind: "startsWith", label, value: parseString(lexer) };
    case "ends with":
      return { kind: "endsWith", label, value: parseString(lexer) };
  }
}

function parseString(lexer: SelectorLexer): string {
  const token = lexer.next();
  if (token.kind !== "string") lexer.fail(token.at, "expected string in quotes");
  return token.text;
}

function parseSet(lexer: SelectorLexer): readonly string[] {
  const open = lexer.next();
  if (open.kind !== "{") lexer.fail(open.at, "expected set literal such as {'a', 'b'}");
  const values: string[] = [];
  while (lexer.readListed(values));
  for (;;) {
    const token = lexer.next();
    if (token.kind === "}") return sortedSet(values);
    if (token.kind !== "string") lexer.fail(token.at, "expected string or } in set literal");
    values.push(token.text);
    const separator = lexer.next();
    if (separator.kind === "}") return sortedSet(values);
    if (separator.kind !== ",") lexer.fail(separator.at, "expected } or , in set literal");
  }
}
