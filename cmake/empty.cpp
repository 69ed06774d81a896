// SPDX-License-Identifier: Apache-2.0
// Nothing: what an archive is linked with, to see whether it fits.
