// Exports the parts of Felix that other programs use: its command line, and its removal from the kernel.
export { FELIX, felixGrammar } from "./table.ts";

export const loadFelixProgram = () => import("./program.ts");

/** Removes everything that Felix programmed from the kernel. The code is loaded on demand. */
export async function removeFromKernel(
  ...parameters: Parameters<typeof import("./removal.ts").removeFromKernel>
): Promise<void> {
  return (await import("./removal.ts")).removeFromKernel(...parameters);
}
