// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/registrations.h"

#include <algorithm>

#include "bootstrap/exchange.h"
#include "log/log.h"

namespace tutti::backend {
namespace {

/// Whether the part of the own buffer in [begin, begin + bytes) is still the registered memory.
bool is_there(const RegisteredBuffer& buffer, const void* begin, uint64_t bytes) {
  const auto* const from = static_cast<const uint8_t*>(begin);
  for (size_t i = 0; i < buffer.pieces.size(); ++i) {
    const bool ends_before = i + 1 < buffer.pieces.size() && buffer.pieces[i + 1].begin <= from;
    if (ends_before || buffer.pieces[i].begin >= from + bytes) continue;
    if (cuda::allocation_id(buffer.pieces[i].begin) != buffer.pieces[i].id) return false;
  }
  return true;
}

}  // namespace

Result<bool> GpuRegistrations::all_say(bool yes, base::Time deadline) const {
  TUTTI_ASSIGN(const std::vector<uint32_t> all, bootstrap::exchange(bootstrap_, uint32_t{yes ? 1u : 0u}, deadline));
  return std::find(all.begin(), all.end(), 0u) == all.end();
}

Result<std::optional<uint64_t>> GpuRegistrations::add(void* buffer, uint64_t bytes, const Status& loaded,
                                                      base::Time deadline) {
  const std::optional<uint64_t> nothing;
  if (!options_.reaches_all) {
    log::info("registered buffers make no difference: not all GPUs reach each other's memory");
    return nothing;
  }
  if (options_.rank_count > TUTTI_CUDA_SMALL_RANKS) {
    log::info(
        "registered buffers make no difference: kernels and copy engines store to outputs of up to {} ranks, not {}",
        TUTTI_CUDA_SMALL_RANKS, options_.rank_count);
    return nothing;
  }
  RegisteredBuffer own;
  Shared shared;
  auto offered = loaded.ok() ? offer(buffer, bytes, own, shared) : loaded;
  if (offered.ok()) offered->left_ms = base::left_until(deadline).count();
  if (!offered.ok()) log::info("the buffer that was registered is not reached: {}", offered.status().text());
  TUTTI_ASSIGN(const std::vector<Offer> offers,
               bootstrap::exchange(bootstrap_, offered.ok() ? *offered : Offer(), deadline));
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].overlaps == 0) continue;
    return Status(Code::kFailedPrecondition,
                  fmt::format("register_buffer: the buffer of rank {} overlaps one that is registered; end that "
                              "registration first",
                              rank));
  }
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    if (offers[rank].is_shared != 0) continue;
    log::info("the registered buffers make no difference: rank {} cannot share its own", rank);
    return nothing;
  }
  const Status mapped = map(offers, shared, own);
  if (!mapped.ok()) log::info("the registered buffers make no difference: {}", mapped.text());
  TUTTI_ASSIGN(const bool all_mapped, all_say(mapped.ok(), deadline));
  if (!all_mapped) return nothing;
  own.number = ++latest_;
  known_.add(std::move(own));
  return std::optional<uint64_t>(latest_);
}

/// Makes the streams, too, that the first call would have to wait for.
Result<GpuRegistrations::Offer> GpuRegistrations::offer(void* buffer, uint64_t bytes, RegisteredBuffer& own,
                                                        Shared& shared) {
  forget_freed(buffer, bytes);
  Offer offer;
  offer.overlaps = known_.overlapping(buffer, bytes) != nullptr ? 1 : 0;
  if (offer.overlaps != 0) return offer;
  for (SideStream& side : sides_) {
    if (side.stream() != nullptr) continue;
    TUTTI_ASSIGN(side, SideStream::create(options_.device));
  }
  TUTTI_ASSIGN(const cuda::Allocation allocation, cuda::allocation_of(buffer, options_.device));
  auto post = base::FdPost::open();
  if (post.ok()) offer.post = shared.post.emplace(*std::move(post)).address();
  own.own = static_cast<const uint8_t*>(buffer);
  own.bytes = bytes;
  auto address = cuda::export_allocation(allocation, options_.device);
  if (address.ok()) {
    offer.address = *address;
    offer.offset = static_cast<uint64_t>(own.own - allocation.begin);
    if (bytes > allocation.bytes - offer.offset) {
      return Status(Code::kUnsupported, "it goes beyond one allocation");
    }
    own.pieces = {{own.own, allocation.id}};
  } else {
    auto segments = cuda::export_segments(buffer, bytes, options_.device);
    if (!segments.ok()) return segments.status().with_context(address.status().text());
    shared.segments = *std::move(segments);
    offer.segments = static_cast<uint32_t>(shared.segments.files.size());
    offer.offset = shared.segments.offset;
    for (const uint8_t* begin : shared.segments.begins) own.pieces.push_back({begin, cuda::allocation_id(begin)});
  }
  offer.is_shared = 1;
  return offer;
}

/// If a registered buffer was freed, its address may belong to a new buffer by now.
void GpuRegistrations::forget_freed(const void* begin, uint64_t bytes) {
  for (;;) {
    const RegisteredBuffer* const old = known_.overlapping(begin, bytes);
    if (old == nullptr || is_there(*old, old->own, old->bytes)) return;
    log::info("a registered buffer was freed: its registration has ended");
    end(old->number);
  }
}

/// By rank; nothing where no rank has segments. In half of the time that all ranks have: then they still agree on the
/// outcome.
Result<std::vector<base::FdPost::Parcel>> GpuRegistrations::give_segments(const std::vector<Offer>& offers,
                                                                          Shared& shared) const {
  const bool any = std::any_of(offers.begin(), offers.end(), [](const Offer& offer) { return offer.segments > 0; });
  if (!any) return std::vector<base::FdPost::Parcel>(offers.size());
  std::vector<base::FdPost::Address> posts;
  int64_t left_ms = offers.front().left_ms;
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    posts.push_back(offers[rank].post);
    left_ms = std::min(left_ms, offers[rank].left_ms);
    if (offers[rank].post.secret == 0) return Status(Code::kUnsupported, fmt::format("rank {} has no socket", rank));
  }
  std::vector<base::FdPost::Item> items;
  for (size_t i = 0; i < shared.segments.files.size(); ++i) {
    items.push_back({shared.segments.files[i].get(), shared.segments.bytes[i]});
  }
  const auto is_over = [this]() -> Status {
    const auto failure = bootstrap_.failure();
    return failure ? Status(Code::kRemote, "the communicator has failed") : Status();
  };
  return shared.post->exchange(posts, options_.rank, items, base::time_in(base::Milliseconds(left_ms / 2)), is_over);
}

Status GpuRegistrations::map(const std::vector<Offer>& offers, Shared& shared, RegisteredBuffer& own) const {
  struct Mapped {
    std::vector<cuda::PeerMemory> allocations;
    std::vector<cuda::MappedSegments> segments;
  };
  TUTTI_ASSIGN(const auto parcels, give_segments(offers, shared));
  auto mapped = std::make_shared<Mapped>();
  for (uint32_t rank = 0; rank < offers.size(); ++rank) {
    if (rank == options_.rank) {
      own.of_rank.push_back(const_cast<uint8_t*>(own.own));
      continue;
    }
    const auto put = [&](auto memory, auto& to) -> Status {
      if (!memory.ok()) return memory.status().with_context(fmt::format("the buffer of rank {}", rank));
      own.of_rank.push_back(memory->data() + offers[rank].offset);
      to.push_back(*std::move(memory));
      return {};
    };
    if (offers[rank].segments > 0) {
      TUTTI_TRY(put(cuda::MappedSegments::map(parcels[rank], options_.device), mapped->segments));
    } else {
      TUTTI_TRY(put(cuda::PeerMemory::import(offers[rank].address, options_.device), mapped->allocations));
    }
  }
  own.mapped = std::move(mapped);
  return {};
}

void GpuRegistrations::end(uint64_t number) {
  const cuda::CaptureScope capture;
  known_.end(number);
}

std::optional<RegisteredPlace> GpuRegistrations::find(const Call& call) {
  const uint64_t bytes = registrable_output_bytes(call, static_cast<int>(options_.rank_count));
  if (bytes == 0) return std::nullopt;
  const RegisteredBuffer* const buffer = known_.find(call.output, bytes);
  if (buffer == nullptr) return std::nullopt;
  if (!is_there(*buffer, call.output, bytes)) [[unlikely]] {
    forget_freed(buffer->own, buffer->bytes);
    return std::nullopt;
  }
  return RegisteredPlace{buffer, static_cast<uint64_t>(static_cast<const uint8_t*>(call.output) - buffer->own)};
}

void GpuRegistrations::set_peer_outputs(const RegisteredPlace& place, tutti_cuda_launch& launch) const {
  for (uint32_t rank = 0; rank < options_.rank_count; ++rank) {
    launch.outputs[rank] = place.buffer->of_rank[rank] + place.offset;
  }
  launch.place = place_of(place.buffer->number, place.offset);
}

Status GpuRegistrations::attach_side_stream(Stream stream, tutti_cuda_copies& copies) const {
  // A stream that was captured stays so until that capture ends.
  TUTTI_ASSIGN(const auto capture, capture_of(static_cast<cudaStream_t>(stream)));
  const SideStream& side = sides_[capture ? 1 : 0];
  TUTTI_ASSIGN(const auto other, capture_of(side.stream()));
  if (other && other != capture) {
    return {Code::kFailedPrecondition,
            "calls of one communicator on registered buffers are in two captures at once; end one before the other"};
  }
  copies.side = side.stream();
  copies.fork = side.fork();
  copies.join = side.join();
  return {};
}

}  // namespace tutti::backend
