// Runs blocking work (a database, a planner) for a coroutine, which must not block.
#pragma once

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace perseus::http {

// co_await Offload(pool, [&] { return store.FindJob(id); })
// Runs `work` on the pool. Then the coroutine continues on its own loop. Objects to which `work`
// refers must live until then, as the locals of the coroutine do. Exceptions pass through. Join the
// pool before the loop is destroyed.
//
// The result goes directly from the pool's thread to the loop. With co_spawn, the result would
// first wait in the queue of the pool again, behind all other work.
template <typename Work>
boost::asio::awaitable<std::invoke_result_t<Work&>> Offload(boost::asio::thread_pool& pool,
                                                            Work work) {
  namespace asio = boost::asio;
  using Answer = std::invoke_result_t<Work&>;
  std::optional<std::conditional_t<std::is_void_v<Answer>, bool, Answer>> answer;
  std::exception_ptr thrown;
  const auto run = [&] {
    try {
      if constexpr (std::is_void_v<Answer>) {
        work();
      } else {
        answer.emplace(work());
      }
    } catch (...) {
      thrown = std::current_exception();
    }
  };
  auto start = [&pool, &run](auto handler) {
    auto loop = asio::prefer(asio::get_associated_executor(handler),
                             asio::execution::outstanding_work.tracked);
    asio::post(pool, [&run, loop = std::move(loop), handler = std::move(handler)]() mutable {
      run();
      asio::post(loop, std::move(handler));
    });
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>&, void()>(start, asio::use_awaitable);
  if (thrown) std::rethrow_exception(thrown);
  if constexpr (!std::is_void_v<Answer>) co_return *std::move(answer);
}

}  // namespace perseus::http
