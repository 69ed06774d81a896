// SPDX-License-Identifier: Apache-2.0
// How a communicator comes to life: configuration → rendezvous → hosts → plugins → agreement → memory and listeners →
// topology → algorithms' channels → tuner.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>

#include "backend/factory.h"
#include "bootstrap/agreement.h"
#include "bootstrap/endpoint.h"
#include "bootstrap/host.h"
#include "bootstrap/wire.h"
#include "communicator/own_interface.h"
#include "communicator/setup/choices.h"
#include "communicator/setup/contact.h"
#include "communicator/setup/figures.h"
#include "communicator/setup/limits.h"
#include "communicator/setup/machine.h"
#include "communicator/setup/network.h"
#include "communicator/setup/plan_files.h"
#include "communicator/setup/ports.h"
#include "communicator/setup/racks.h"
#include "communicator/setup/waits.h"
#include "communicator/state.h"
#include "log/log.h"
#include "plugin/loader.h"
#include "program/channels.h"
#include "progress/bell.h"
#include "topology/affinity.h"
#include "transport/failover.h"
#include "tuner/sample.h"

namespace tutti {
namespace {

using bootstrap::HostIdentity;
using communicator::Contact;

constexpr base::Milliseconds kRouteMargin{1000};  // a network notices a loss after timeouts.peer_loss

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Result<uint64_t> random_number() {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) == sizeof number) return number;
  return Status(Code::kSystem, "getrandom failed; check the system's random source");
}

}  // namespace

/// Builds one State, step by step; each step uses the results of the earlier steps.
class Setup {
 public:
  Setup(Communicator::State& state, const UniqueId& id) : state_(state), id_(id), config_(state.config_) {
    deadline_ = base::time_in(config_.duration("timeouts.bootstrap"));
  }

  /// The other ranks must not wait for a rank that cannot take part, nor take it for one that left by mistake.
  Status run() {
    Status made = make();
    const bool told = made.ok() || state_.bootstrap_ == nullptr || all_differ_ || state_.bootstrap_->all_know_failure();
    if (told) return made;
    state_.break_with(made);  // before the hub returns it, with the text for the other ranks
    state_.bootstrap_->post_abort(
        fmt::format("{}|rank {}: {}", static_cast<int>(made.code()), state_.rank_, made.text()));
    return made;
  }

 private:
  Status make() {
    TUTTI_TRY(meet());
    TUTTI_TRY(find_hosts());
    TUTTI_TRY(load_plugins());
    TUTTI_TRY(agree());
    TUTTI_TRY(describe_protocols());
    TUTTI_TRY(join_memory());
    TUTTI_TRY(make_backend());
    describe_topology();
    TUTTI_TRY(describe_machine());
    TUTTI_TRY(exchange_machines());
    TUTTI_TRY(connect_algorithms());
    topology_.system = nullptr;  // tuners decide equally on all ranks
    TUTTI_TRY(communicator::create_tuner(*state_.registry_, topology_, choices_));
    TUTTI_TRY(finish());
    return agree_on_decisions();
  }

  Status meet() {
    const auto loss = std::chrono::duration_cast<base::Milliseconds>(config_.duration("timeouts.peer_loss"));
    TUTTI_ASSIGN(state_.bootstrap_,
                 bootstrap::Bootstrap::join(id_, state_.rank_, state_.size_, deadline_, loss,
                                            {config_.joined("bootstrap.interface"), config_.text("host")}));
    auto* state = &state_;
    start_watch();
    state_.bootstrap_->set_callbacks(
        {[state](const bootstrap::FailureReport& report) { state->on_failure(report); },
         [state](std::span<const std::byte> question) { return state->watch_.answer(question); },
         [state](const bootstrap::Departure& gone) { state->on_departure(gone); }, [state] { state->on_tick(); },
         communicator::Watch::interval(static_cast<uint32_t>(state_.size_))});
    return communicator::check_own_interface(config_);
  }

  void start_watch() {
    uint64_t seed = 0;
    for (const std::byte byte : state_.secret_) seed = backend::mix(seed, static_cast<uint64_t>(byte));
    state_.ledger_.history.set_seed(seed);
    auto* state = &state_;
    state_.watch_.start(
        {static_cast<uint32_t>(state_.rank_), static_cast<uint32_t>(state_.size_), config_.duration("timeouts.warn"),
         config_.boolean("check.calls"), on_gpu(), [state](uint32_t peer) { return state->connections_with(peer); }},
        *state_.bootstrap_, [state](const Status& difference) { state->fail_in_background(difference); });
  }

  Status find_hosts() {
    HostIdentity own = bootstrap::this_host(config_.text("host"));
    own.processors = topology::format_cpu_mask(topology::current_affinity());
    TUTTI_ASSIGN(const auto all, state_.bootstrap_->all_gather(encode(own), deadline_));
    TUTTI_ASSIGN(const bootstrap::Hosts hosts, bootstrap::Hosts::decode(all));
    for (uint32_t rank = 0; rank < all.size(); ++rank) {
      const HostIdentity& host = hosts.of(rank);
      host_names_.push_back(host.pretended_name.empty() ? host.host_name : host.pretended_name);
      nodes_.push_back(hosts.node_of(rank));
    }
    crowd_ = communicator::crowd_of(hosts, static_cast<uint32_t>(state_.rank_));
    node_count_ = *std::max_element(nodes_.begin(), nodes_.end()) + 1;
    for (uint32_t r = 0; r < nodes_.size(); ++r) {
      if (nodes_[r] == nodes_[static_cast<size_t>(state_.rank_)]) local_ranks_.push_back(r);
    }
    TUTTI_ASSIGN(racks_, communicator::Racks::read(config_, host_names_));
    if (const std::string odd = racks_.warning(); !odd.empty() && state_.rank_ == 0) log::warn("{}", odd);
    force_network_ = config_.text("transport") == "net";
    TUTTI_TRY(communicator::check_transport(config_, node_count_));
    crowd_.uses_network = node_count_ > 1 || (force_network_ && state_.size_ > 1);
    return {};
  }

  Status load_plugins() {
    TUTTI_ASSIGN(state_.registry_, plugin::Registry::load(config_, crowd_.uses_network));
    TUTTI_ASSIGN(plan_files_, communicator::PlanFiles::read(config_));
    TUTTI_ASSIGN(hardware_, communicator::hardware_of(config_));
    return {};
  }

  Status agree() {
    std::vector<std::string> config = config_.agreement();
    for (std::string& line : hardware_.differences()) config.push_back(std::move(line));
    TUTTI_TRY(agree_on({TUTTI_VERSION, state_.registry_->identity(), std::move(config), {}, plan_files_.identity()}));
    choices_.proves_plans = config_.boolean("check.plans");
    if (!choices_.proves_plans) return {};
    Status proved = plan_files_.prove(static_cast<uint32_t>(state_.size_));
    all_differ_ = !proved.ok();  // all ranks have the same files, and find the same fault
    return proved;
  }

  Status agree_on(const bootstrap::Identity& mine) {
    Status agreed = bootstrap::agree(*state_.bootstrap_, mine, deadline_);
    all_differ_ = agreed.code() == Code::kMismatch;
    return agreed;
  }

  /// The last step, which no rank ends before all have come to it.
  Status agree_on_decisions() {
    const std::string& tuner = state_.selector_->choices().tuner_name;
    Status agreed = agree_on({TUTTI_VERSION, {}, {}, tuner::sample_decisions(*state_.selector_)});
    if (agreed.code() != Code::kMismatch) return agreed;
    return agreed.with_context(
        fmt::format("tuner '{}' needs the same tables and descriptions of machines on all hosts", tuner));
  }

  Status describe_protocols() {
    max_channels_ = communicator::max_channels(config_, device(), crowd_.uses_network, 0);
    TUTTI_ASSIGN(protocols_, communicator::lay_out_protocols(*state_.registry_, config_, device(), max_channels_));
    choices_.protocols = std::move(protocols_.list);
    return {};
  }

  /// The NUMA node of the rank's GPU, or else that on which the rank runs.
  std::optional<topology::Cpu> find_home() const {
    if (!on_gpu()) return communicator::current_numa_node();
    const auto address = backend::Gpu::current_address();  // without CUDA, setup fails later
    auto home = address.ok() ? communicator::numa_node_of(*address) : std::nullopt;
    if (home) return home;
    log::info("affinity: the NUMA node of the GPU is not known{}",
              address.ok() ? "" : ": " + std::string(address.status().text()));
    return communicator::current_numa_node();
  }

  Status join_memory() {
    // Buffers, and the threads that move them, live where the rank does.
    home_ = find_home();
    const std::string& wanted = config_.text("affinity");
    std::optional<topology::AffinityScope> affinity;
    if (home_ && wanted != "off") {
      using Scope = topology::AffinityScope;
      affinity.emplace(*home_, Scope::Memory::kPreferred,
                       wanted == "ignore_mask" ? Scope::Mask::kIgnore : Scope::Mask::kObey);
    }
    TUTTI_ASSIGN(const uint64_t number, random_number());
    TUTTI_ASSIGN(const auto shared, state_.bootstrap_->broadcast(0, bytes_of(number), deadline_));
    uint64_t communicator = 0;
    std::memcpy(&communicator, shared.data(), std::min(shared.size(), sizeof communicator));

    TUTTI_ASSIGN(auto shm, transport::Shm::create(static_cast<uint32_t>(state_.rank_), local_ranks_, protocols_.shm));
    communicator::Networks networks;
    if (crowd_.uses_network) {
      TUTTI_ASSIGN(networks, open_networks(protocols_.net, communicator, shm->bell()));
    }
    Contact mine;
    mine.barriers = progress::sleepers_make_barriers() ? 1 : 0;
    mine.arena = shm->address();
    mine.token_address = reinterpret_cast<uint64_t>(shm->token_address());
    if (home_) mine.numa = home_->numa;
    if (state_.size_ > 1 && config_.boolean("bootstrap.shrink")) {
      TUTTI_ASSIGN(state_.reunion_, bootstrap::Reunion::open(state_.rank_, config_.joined("bootstrap.interface")));
      mine.reunion = state_.reunion_->place();
    }
    TUTTI_ASSIGN(const auto all, state_.bootstrap_->all_gather(communicator::encode(mine, networks.open), deadline_));
    std::vector<Contact> contacts;
    std::vector<UniqueId> places;
    std::vector<std::vector<communicator::NetworkContact>> ends;  // by rank
    for (const std::span<const std::byte> bytes : all) {
      TUTTI_ASSIGN(communicator::Contacted one, communicator::decode_contact(bytes));
      contacts.push_back(one.contact);
      places.push_back(one.contact.reunion);
      numa_of_rank_.push_back(one.contact.numa);
      ends.push_back(std::move(one.networks));
    }
    fences_ =
        std::any_of(contacts.begin(), contacts.end(), [](const Contact& contact) { return contact.barriers == 0; });
    if (state_.reunion_ != nullptr) state_.reunion_->learn(std::move(places));
    join_networks(networks, ends);
    if (!force_network_) TUTTI_TRY(attach(*shm, contacts));
    // No rank closes its memory before all ranks have mapped it.
    TUTTI_TRY(state_.bootstrap_->barrier(deadline_));
    shm->seal();
    if (!networks.open.empty()) net_ = networks.open.front().get();
    choices_.unused_networks = std::move(networks.unused);
    fabric_ = std::make_unique<backend::Fabric>(std::move(shm), std::move(networks.open), std::move(protocols_.shm),
                                                std::move(protocols_.net), force_network_);
    choices_.network_inside_racks = racks_.network(choices_.networks);
    if (const auto inside = choices_.network_inside_racks)
      log::info("network '{}' inside {}", choices_.networks[*inside].name, racks_.describe());
    fabric_->set_paths(racks_.paths(static_cast<uint32_t>(state_.rank_), choices_.networks));
    return {};
  }

  /// Gives each network the ends of all ranks. All ranks must use the same figures, and the slowest port delays all
  /// ranks.
  void join_networks(const communicator::Networks& networks,
                     std::vector<std::vector<communicator::NetworkContact>>& ends) {
    const auto& nets = networks.open;
    if (!nets.empty())
      max_channels_ = communicator::max_channels(config_, device(), true, communicator::most_ports(ends));
    protocols_.net.channels = max_channels_;
    // On GPUs, the calls of each network have connections of their own, also over the network inside racks.
    const uint32_t connections = max_channels_ * (on_gpu() ? communicator::networks_of_calls(config_, nets.size()) : 1);
    if (state_.failover_ != nullptr) {
      std::vector<const transport::Net*> all;
      for (const auto& net : nets) all.push_back(net.get());
      state_.failover_->set_nets(std::move(all));
      if (state_.rank_ == 0) communicator::warn_of_one_route(config_, ends);
    }
    for (size_t i = 0; i < nets.size(); ++i) {
      tuner::Network network;
      network.name = nets[i]->options().name;
      // A device's own figures are lower bounds of nothing: a loopback says 0, and TCP has its own latency.
      const topology::NetworkFigures known = hardware_.network(network.name);
      network.gbs = std::numeric_limits<double>::max();
      std::vector<std::vector<transport::Net::Endpoint>> endpoints;
      for (std::vector<communicator::NetworkContact>& of_rank : ends) {
        const communicator::NetworkContact& end = of_rank[i];
        network.gbs = std::min(network.gbs, end.gbs > 0 ? end.gbs : known.gbs);
        network.latency_us = std::max(network.latency_us, communicator::latency_of(known, end.latency_us));
        endpoints.push_back(std::move(of_rank[i].endpoints));
      }
      nets[i]->set_peers(std::move(endpoints), connections);
      log::info("network '{}': ports of {:.3g} GB/s, {:.3g} µs", network.name, network.gbs, network.latency_us);
      network.gbs = communicator::share_gbs(ends, i, nodes_, max_channels_, known.gbs);
      choices_.networks.push_back(std::move(network));
    }
  }

  bool on_gpu() const { return config_.text("device") == "cuda"; }
  uint32_t device() const { return on_gpu() ? TUTTI_DEVICE_CUDA : TUTTI_DEVICE_HOST; }

  Status make_backend() {
    backend::Parts parts{state_,
                         state_.ledger_,
                         {calls(), communicator::waits_of(config_, crowd_)},
                         gpu_options(),
                         fabric_,
                         choices_.protocols,
                         *state_.bootstrap_,
                         deadline_};
    TUTTI_ASSIGN(auto made, state_.make_backend_(parts));
    {
      const std::lock_guard lock(state_.failure_mutex_);
      state_.backend_ = std::move(made);
      if (!state_.failure_.ok()) state_.backend_->stop();
    }
    const std::vector<uint32_t>& strand_ctas = state_.backend_->device().strand_ctas;
    for (size_t p = 0; p < strand_ctas.size(); ++p) choices_.protocols[p].strand_ctas = strand_ctas[p];
    return on_gpu() ? name_gpus() : Status();
  }

  std::optional<backend::Gpu::Options> gpu_options() const {
    if (!on_gpu()) return std::nullopt;
    const std::vector<uint32_t> alone{static_cast<uint32_t>(state_.rank_)};
    return backend::Gpu::Options{static_cast<uint32_t>(state_.rank_),
                                 static_cast<uint32_t>(state_.size_),
                                 max_channels_,
                                 static_cast<uint32_t>(config_.integer("p2p.slots")),
                                 config_.size_bytes("p2p.slot_size"),
                                 config_.text("transport") == "shm",
                                 force_network_ ? alone : local_ranks_,
                                 nullptr,
                                 communicator::networks_of_calls(config_, choices_.networks.size()),
                                 config_.duration("timeouts.operation"),
                                 backend::Gpu::use_of(config_.text("net.direct")),
                                 backend::Gpu::use_of(config_.text("net.pxn"))};
  }

  backend::Executions::Options calls() const {
    return {static_cast<uint32_t>(state_.rank_),
            static_cast<uint32_t>(state_.size_),
            config_.boolean("check.calls"),
            direct_minimum_,
            fences_,
            &state_.abort_word_};
  }

  /// Every rank has to know the same: tuners look tables up by it.
  Status name_gpus() {
    const std::string& own = state_.backend_->device().name;
    TUTTI_ASSIGN(const auto all, state_.bootstrap_->all_gather(std::as_bytes(std::span(own)), deadline_));
    std::vector<std::string> names;
    for (const std::span<const std::byte> bytes : all) {
      std::string name(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(std::move(name));
    }
    gpu_name_ = fmt::format("{}", fmt::join(names, " + "));
    topology_.gpu_name = {gpu_name_.data(), gpu_name_.size()};
    return {};
  }

  Status attach(transport::Shm& shm, const std::vector<Contact>& contacts) {
    std::vector<transport::Shm::Peer> peers;
    for (const uint32_t rank : local_ranks_) peers.push_back({contacts[rank].arena, contacts[rank].token_address});
    const std::string& copy = config_.text("shm.single_copy");
    const auto mode = copy == "on"    ? transport::Shm::SingleCopy::kOn
                      : copy == "off" ? transport::Shm::SingleCopy::kOff
                                      : transport::Shm::SingleCopy::kAuto;
    if (const Status attached = shm.attach(peers, mode); !attached.ok()) {
      const Status told = state_.told_failure();
      return told.ok() ? attached : told;
    }
    direct_minimum_ = mode == transport::Shm::SingleCopy::kOff ? 0 : config_.size_bytes("shm.single_copy_min");
    log::info("shared memory with {} local ranks, single copy: {}", local_ranks_.size(), shm.single_copy());
    return {};
  }

  Result<communicator::Networks> open_networks(const transport::KeySpace& keys, uint64_t communicator,
                                               tutti_bell& bell) {
    transport::Net::Options options;
    options.communicator = communicator;
    options.rank = static_cast<uint32_t>(state_.rank_);
    options.keys = keys;
    options.bell = &bell;
    auto* state = &state_;
    options.standing = [state](uint32_t rank) { return state->standing(rank); };
    options.incoming = std::make_shared<transport::Incoming>();
    options.serves_left = on_gpu();
    options.polling_threads = communicator::polling_threads(config_.integer("net.polling_threads"), crowd_);
    options.hosts = host_names_;
    options.call_limit = config_.duration("timeouts.operation");
    options.check_plugins = config_.boolean("check.plugins");
    options.check_data = config_.boolean("check.data");
    TUTTI_TRY(communicator::check_network_settings(config_));
    if (config_.boolean("net.failover")) {
      state_.failover_ = std::make_shared<transport::Failover>(config_.duration("timeouts.peer_loss") + kRouteMargin);
      options.failover = state_.failover_;
    }
    options.on_failure = [state](const Status& failure) { state->on_network_failure(failure); };
    const communicator::NetworkWishes wishes{&config_, static_cast<uint32_t>(state_.size_), node_count_, on_gpu()};
    return communicator::open_networks(*state_.registry_, wishes, std::move(options), *state_.bootstrap_, deadline_);
  }

  void describe_topology() {
    const auto size = static_cast<uint32_t>(state_.size_);
    if (force_network_) {
      // Ranks of one host that must not share memory are hosts of their own to the algorithms.
      for (uint32_t r = 0; r < size; ++r) nodes_[r] = r;
      node_count_ = size;
    }
    topology_.struct_size = sizeof topology_;
    topology_.rank_count = size;
    topology_.node_count = node_count_;
    topology_.node_of_rank = nodes_.data();
    if (!force_network_) links_.inside = on_gpu() ? state_.backend_->device().link : uint32_t{TUTTI_LINK_SHM};
    if (!choices_.networks.empty()) links_.network = choices_.networks.front().name;
  }

  /// The system graph of this machine, for the one rank of it that searches.
  Status describe_machine() {
    if (!is_first_of_node()) return {};
    communicator::MachineOptions options;
    options.file = config_.text("topology.file");
    options.network = net_;
    options.hardware = &hardware_;
    options.other_networks = choices_.networks.size() > 1;
    options.second_gpus = communicator::uses_second_gpus(config_);
    const uint32_t node = nodes_[static_cast<size_t>(state_.rank_)];
    for (uint32_t rank = 0; rank < nodes_.size(); ++rank) {
      if (nodes_[rank] != node) continue;
      topology::RankPlace& place = options.ranks.emplace_back();
      place.rank = rank;
      place.numa = numa_of_rank_[rank];
    }
    const backend::Device& device = state_.backend_->device();
    // Data between GPUs that do not reach each other goes through the host.
    if (on_gpu()) communicator::place_on_gpus(options.ranks, device.addresses, device.link == TUTTI_LINK_P2P);
    options.stand_in = !on_gpu() && config_.text("topology.host_ranks") == "gpu";
    TUTTI_ASSIGN(auto system, communicator::describe_machine(options));
    system_ = std::make_unique<topology::System>(std::move(system));
    system_view_ = system_->view();
    topology_.system = &system_view_;
    return {};
  }

  bool is_first_of_node() const {
    const auto rank = static_cast<size_t>(state_.rank_);
    return std::find(nodes_.begin(), nodes_.end(), nodes_[rank]) - nodes_.begin() == state_.rank_;
  }

  Status connect_algorithms() {
    const auto rank = static_cast<uint32_t>(state_.rank_);
    const std::vector<program::AlgorithmPlugin> algorithms = communicator::algorithms_of(*state_.registry_);
    std::vector<bootstrap::Bytes> mine;  // by algorithm
    if (is_first_of_node()) {            // one rank of each machine searches
      for (const program::AlgorithmPlugin& algorithm : algorithms) {
        TUTTI_ASSIGN(const topology::NodeGraph graph, program::search(algorithm, topology_, rank));
        mine.push_back(graph.encode());
      }
    }
    TUTTI_ASSIGN(const auto all, state_.bootstrap_->all_gather(bootstrap::pack(mine), deadline_));
    std::vector<std::vector<topology::NodeGraph>> graphs(algorithms.size(),
                                                         std::vector<topology::NodeGraph>(node_count_));
    for (size_t from = 0; from < all.size(); ++from) {
      TUTTI_ASSIGN(const auto found, bootstrap::entries_of(all[from]));
      for (size_t a = 0; a < std::min(found.size(), algorithms.size()); ++a) {
        TUTTI_ASSIGN(graphs[a][nodes_[from]], topology::NodeGraph::decode(found[a]));
      }
    }
    for (size_t a = 0; a < algorithms.size(); ++a) TUTTI_TRY(connect(algorithms[a], graphs[a]));
    tutti_topology of_files = topology_;
    of_files.max_channels = std::min(of_files.max_channels, communicator::default_port_channels(ports_));
    plan_files_.add_to(choices_, of_files, rank == 0);
    return {};
  }

  /// All ranks need the figures and ports of all machines: they must decide equally and connect the same channels.
  Status exchange_machines() {
    communicator::MachineFacts mine;
    if (is_first_of_node()) {
      mine.figures = communicator::figures_of(*system_, hardware_, device(), links_, max_channels_, part_of_machine());
      if (net_ != nullptr) communicator::add_ports(mine, *system_, net_->fastest_devices(), !force_network_);
    }
    const auto bytes = is_first_of_node() ? communicator::encode(mine) : std::vector<std::byte>();
    TUTTI_ASSIGN(const auto all, state_.bootstrap_->all_gather(bytes, deadline_));
    std::vector<communicator::Figures> figures;
    std::vector<backend::Detour> detours;
    if (net_ != nullptr) ports_.resize(node_count_);
    communicator::OwnPorts own_ports(node_count_);
    for (size_t from = 0; from < all.size(); ++from) {
      if (all[from].empty()) continue;
      TUTTI_ASSIGN(communicator::MachineFacts facts, communicator::decode_facts(all[from]));
      figures.push_back(facts.figures);
      if (net_ != nullptr) ports_[nodes_[from]] = std::move(facts.ports);
      own_ports[nodes_[from]] = std::move(facts.own_ports);
      for (const communicator::Detour& detour : facts.detours) {
        if (std::cmp_equal(detour.rank, state_.rank_)) detours.push_back({detour.port, detour.gpu.data()});
      }
    }
    if (net_ != nullptr) own_ports = communicator::agreed_own_ports(std::move(own_ports), ports_, host_names_);
    const auto rank = static_cast<uint32_t>(state_.rank_);
    if (net_ != nullptr) communicator::log_ports(own_ports, ports_, nodes_, host_names_, rank);
    if (net_ != nullptr) net_->share_devices(nodes_, std::move(own_ports));
    communicator::set_limits(device(), max_channels_, links_, hardware_, communicator::slowest(figures), topology_,
                             choices_);
    return state_.backend_->set_detours(detours);
  }

  /// The share of this machine's processors that a host has. Pretended hosts share them. A topology file describes a
  /// pretended host.
  double part_of_machine() const {
    if (!config_.text("topology.file").empty()) return 1;
    const auto here = std::ranges::count(nodes_, nodes_[static_cast<size_t>(state_.rank_)]);
    return static_cast<double>(here) / crowd_.ranks;
  }

  /// The channels as `tutti search` prints them.
  void log_channels(const std::string& algorithm, const topology::NodeGraph& graph) const {
    if (!log::enabled(log::Level::kInfo)) return;
    log::info("{}: {}", algorithm, graph.summary());
    if (!graph.is_searched()) return;
    for (const std::string& line : topology::channel_lines(graph, *system_)) log::info("{}: {}", algorithm, line);
  }

  /// `graphs`: by machine.
  Status connect(const program::AlgorithmPlugin& plugin, std::vector<topology::NodeGraph>& graphs) {
    communicator::align_rails(graphs, ports_);
    if (is_first_of_node()) log_channels(plugin.name, graphs[nodes_[static_cast<size_t>(state_.rank_)]]);
    tutti_topology topology = topology_;
    topology.system = nullptr;  // all ranks decide equally, and only one rank of a machine has its graph
    TUTTI_ASSIGN(auto connected, communicator::connect_within(plugin, topology, graphs, ports_));
    if (!connected.reduced.empty() && state_.rank_ == 0) log::info("{}: {}", plugin.name, connected.reduced);
    choices_.algorithms.emplace_back(plugin, std::move(connected.instance));
    return {};
  }

  Status finish() {
    const auto rank = static_cast<uint32_t>(state_.rank_);
    const auto size = static_cast<uint32_t>(state_.size_);
    state_.selector_ = std::make_unique<tuner::Selector>(config_, std::move(choices_));
    TUTTI_TRY(state_.selector_->check());
    const tuner::Choices& choices = state_.selector_->choices();
    state_.plans_ =
        std::make_unique<backend::Plans>(backend::Plans::Options{rank, size, config_.boolean("check.plans")}, choices);
    return state_.backend_->serve(*state_.selector_, *state_.plans_);
  }

  Communicator::State& state_;
  const UniqueId& id_;
  config::Config& config_;
  base::Time deadline_;
  bool all_differ_ = false;  // every rank has found the same difference or fault
  std::vector<uint32_t> nodes_;
  std::vector<std::string> host_names_;  // by rank
  communicator::Racks racks_;
  topology::Hardware hardware_;
  uint32_t node_count_ = 1;
  std::vector<uint32_t> local_ranks_;
  communicator::Crowd crowd_;
  bool force_network_ = false;
  uint32_t max_channels_ = 1;
  communicator::Protocols protocols_;        ///< the list is in choices_; the layouts, until the fabric takes them
  std::unique_ptr<backend::Fabric> fabric_;  ///< until the back end takes it
  transport::Net* net_ = nullptr;            ///< the first network of the fabric; null: there is none
  uint64_t direct_minimum_ = 0;
  bool fences_ = true;
  communicator::Links links_;
  tuner::Choices choices_;
  communicator::PlanFiles plan_files_;
  communicator::Ports ports_;  ///< empty without a network
  std::optional<topology::Cpu> home_;
  std::vector<int> numa_of_rank_;
  std::unique_ptr<topology::System> system_;
  tutti_system system_view_{};
  tutti_topology topology_{};
  std::string gpu_name_;
};

Result<std::shared_ptr<Communicator::State>> Communicator::State::create(const UniqueId& id, int rank, int size,
                                                                         config::Config config, backend::Factory make) {
  if (size < 1 || rank < 0 || rank >= size) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("rank {} of {} ranks: a communicator has at least one rank, numbered from 0", rank, size));
  }
  TUTTI_TRY(base::follow_forks());
  const auto end = [](State* ended) {
    const std::shared_ptr<State> last(ended);
    if (!last->is_here()) base::abandon(last);
  };
  const std::shared_ptr<State> state(new State(rank, size), end);
  if (const auto endpoint = bootstrap::endpoint_of(id); endpoint.ok()) state->secret_ = endpoint->secret;
  state->config_ = std::move(config);
  state->make_backend_ = std::move(make);
  TUTTI_TRY(log::configure(log::level_from(state->config_.text("log.level")), state->config_.text("log.file")));
  log::set_rank(rank, size);
  const Status made = Setup(*state, id).run();
  if (made.ok()) return state;
  // If a different rank is the cause, report its failure.
  const Status failure = state->failure();
  if (failure.ok() && made.code() == Code::kAborted) return reason_of(made);
  return failure.ok() || made.code() == Code::kNotFound || made.code() == Code::kConfig ? made : failure;
}

}  // namespace tutti
