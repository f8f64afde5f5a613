// Prepares the pages of the website: chooses them, changes their links, and derives the navigation from docs/README.md. A
// README.md becomes the index.md of its folder. Links to files that are not pages become plain text.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";
import { changeLinks, title, withoutComments } from "./markdown.ts";

export interface Site {
  /** Contents by path on the site. */
  readonly pages: ReadonlyMap<string, string>;
  /** Pictures: path on the site, by path in the repository. */
  readonly pictures: ReadonlyMap<string, string>;
  readonly navigation: readonly Group[];
}

interface Group {
  readonly text: string;
  readonly items: readonly { readonly text: string; readonly link: string }[];
}

const INDEX = "docs/README.md";

/** Returns the paths of all Markdown files that are documentation. */
export function documentPaths(root: string): readonly string[] {
  const below = (folder: string) =>
    existsSync(join(root, folder))
      ? readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })
          .filter((path) => path.endsWith(".md") && !path.includes("node_modules"))
          .map((path) => join(folder, path))
      : [];
  const top = readdirSync(root).filter((name) => name.endsWith(".md"));
  return [...top, ...["docs", "src", "test", "bench"].flatMap(below)].toSorted();
}

const sitePath = (path: string): string => path.replace(/(^|\/)README\.md$/, "$1index.md");

export function prepareSite(root: string): Site {
  const paths = documentPaths(root);
  const known = new Set(paths);
  const pages = new Map<string, string>();
  const pictures = new Map<string, string>();
  const titles = new Map<string, string>();
  for (const path of paths) {
    const text = readFileSync(join(root, path), "utf8");
    titles.set(path, title(text) ?? path);
    const changed = changeLinks(withoutComments(text), (target) => {
      if (/^[a-z]+:/.test(target) || target.startsWith("#")) return target;
      const [file = "", anchor] = target.split("#");
      const wanted = normalize(join(dirname(path), file));
      if (known.has(wanted)) {
        const to = relative(dirname(path), sitePath(wanted)) || "index.md";
        return anchor === undefined ? to : `${to}#${anchor}`;
      }
      if (known.has(join(wanted, "README.md"))) return relative(dirname(path), join(wanted, "index.md"));
      if (!/\.(svg|png)$/.test(wanted) || !existsSync(join(root, wanted))) return undefined;
      pictures.set(wanted, wanted);
      return file.startsWith(".") ? file : `./${file}`;
    });
    pages.set(sitePath(path), changed);
  }
  return { pages, pictures, navigation: navigation(root, known, titles) };
}

/** Each table of the index page is a group: its first heading is the title, and its first column has the links. */
function navigation(root: string, known: ReadonlySet<string>, titles: ReadonlyMap<string, string>): readonly Group[] {
  const text = known.has(INDEX) ? readFileSync(join(root, INDEX), "utf8") : "";
  const groups: { readonly text: string; readonly paths: string[] }[] = [];
  for (const line of text.split("\n")) {
    const [, heading] = /^\| ([A-Z][\w ]+) \| \|$/.exec(line) ?? [];
    if (heading !== undefined) groups.push({ text: heading, paths: [] });
    const [, first = ""] = /^\| (\[.*?) \|/.exec(line) ?? [];
    for (const [, target = ""] of first.matchAll(/\]\(([^)#]+)\)/g))
      groups.at(-1)?.paths.push(normalize(join(dirname(INDEX), target)));
  }
  const reference = [...known].filter((path) => path.startsWith("docs/reference/"));
  const modules = [...known].filter((path) => /^src\/.*README\.md$/.test(path));
  const listed = new Set([...groups.flatMap(({ paths }) => paths), ...reference, ...modules, INDEX, "README.md"]);
  const others = [...known].filter((path) => path.startsWith("docs/") && !listed.has(path));
  return [
    ...groups,
    { text: "Reference", paths: reference.filter((path) => !path.includes("/resources/")) },
    { text: "Resources", paths: reference.filter((path) => path.includes("/resources/")) },
    { text: "More pages", paths: others },
    { text: "Modules", paths: modules },
  ]
    .map(({ text: heading, paths }) => ({
      text: heading,
      items: paths
        .filter((path) => known.has(path))
        .map((path) => ({
          text: titles.get(path) ?? path,
          link: `/${sitePath(path)
            .replace(/\.md$/, "")
            .replace(/(^|\/)index$/, "$1")}`,
        })),
    }))
    .filter(({ items }) => items.length > 0);
}
