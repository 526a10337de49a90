"""fmha for programs that write kernels: a server of the Model Context Protocol over the commands. docs/use/mcp.md."""
